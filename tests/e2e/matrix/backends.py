"""The pods of a matrix: who stands where, as documents for the API."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.matrix.backend import HEALTH
from tests.e2e.matrix.drawing import ADMIN, NAMED, NAMESPACE, Document

PROGRAM = Path(__file__).with_name("backend.py")
LINGERS = 900  # seconds that the pod which is deleted early goes on


@dataclass(frozen=True, slots=True)
class Backend:
    name: str
    node: str
    color: str
    port: int = 8080  # "http" and "dns", whose number differs from pod to pod
    on_host: bool = False  # in the node's own namespace


BACKENDS = (
    Backend("red-1", "node-1", "red"),
    Backend("red-2", "node-2", "red"),
    Backend("red-3", "node-3", "red", 8081),
    Backend("blue-1", "node-1", "blue"),
    Backend("blue-2", "node-1", "blue", 8081),
    Backend("blue-3", "node-3", "blue"),
    Backend("green-1", "node-2", "green"),
    Backend("green-2", "node-3", "green", 8082, on_host=True),
    Backend("grey-1", "node-2", "grey"),
    Backend("dark-1", "node-1", "dark"),
)
VISITORS = ("visitor-1", "visitor-2", "visitor-3")  # one a node, behind no Service
FLOCK = "gold"  # a Deployment
LEAVING = ("red-3", "grey-1")  # end in the last round: no slice made by hand leads to them


def pods(node_addresses: dict[str, Sequence[str]]) -> Iterator[Document]:
    for backend in BACKENDS:
        at = node_addresses[backend.node] if backend.on_host else ()
        spec = {**_spec(backend.port, at), "nodeName": backend.node, "hostNetwork": backend.on_host}
        spec["terminationGracePeriodSeconds"] = LINGERS if backend.color == "grey" else 1
        yield _pod(backend.name, {"color": backend.color}, spec)
    for name in VISITORS:
        container = {"name": "client", "image": "clusterip/client"}
        yield _pod(name, {}, {"nodeName": f"node-{name[-1]}", "containers": [container]})


def flock(replicas: int) -> Document:
    template = {
        "metadata": {"labels": {"color": FLOCK}},
        "spec": {**_spec(8080), "terminationGracePeriodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": FLOCK, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"color": FLOCK}}, "template": template},
    }


def _pod(name: str, labels: dict[str, str], spec: Document) -> Document:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _spec(port: int, at: Sequence[str] = ()) -> Document:
    """`at`: the addresses to listen on; (): all. A datagram's answer has the address that was asked only if it is the
    only one the program listens on."""
    named: list[dict[str, Any]] = [{"name": n, "containerPort": port, "protocol": p} for p, n in NAMED.items()]
    name = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    probe = {"httpGet": {"path": "/", "port": HEALTH}, "periodSeconds": 1, "failureThreshold": 1}
    container = {
        "name": "backend",
        "image": "backend",
        "command": [sys.executable, "-E", str(PROGRAM), "$(NAME)", str(port), str(ADMIN), *(f"@{a}" for a in at)],
        "env": [name],
        "ports": named,
        "readinessProbe": probe,
    }
    return {"containers": [container]}
