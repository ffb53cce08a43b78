"""Drawn Services and EndpointSlices, as the API holds them: every condition, hint and policy that decides who answers.

Addresses, ports and names are those of `tests.dataplane.strategies`, so that its packets find them.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.dataplane.strategies import BOOLEANS, NODE_PORTS, PORTS, PROTOCOLS, Pool, sampled, some

from clusterip.model.objects import EndpointSlice, Service
from clusterip.services.resolve import SERVICE_NAME_LABEL, NodeContext, resolve
from clusterip.services.table import Backend, Entry

NODE = NodeContext("node-1", "east")
NODES = {True: NODE.name, False: "node-2"}  # by whether a backend is local
STATES: tuple[dict[str, bool], ...] = (
    {},  # ready, as whoever wrote the slice meant
    {"ready": True, "serving": True, "terminating": False},
    {"ready": False, "serving": False, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": True},
    {"ready": True, "serving": True, "terminating": True},  # published though it goes
)
CONDITIONS = st.sampled_from(STATES)
KINDS = st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"])
SPOKEN = st.lists(st.sampled_from(PROTOCOLS), min_size=1, max_size=2, unique=True)
IP_MODES = st.sampled_from([None, "VIP", "Proxy"])
LOCAL_OR_NOT = st.sampled_from(["Cluster", "Local"])


@st.composite
def services(draw: st.DrawFn, pool: Pool) -> Service:
    """One port each of up to two names; any type that has a ClusterIP."""
    kind = draw(KINDS)
    protocols = draw(SPOKEN)
    number = draw(sampled(PORTS))
    ports = [
        {"name": f"p{i}", "protocol": p, "port": number, "nodePort": NODE_PORTS[i] if kind != "ClusterIP" else 0}
        for i, p in enumerate(protocols)
    ]
    spec = {
        "type": kind,
        "clusterIP": pool.cluster_ips[0],
        "clusterIPs": [pool.cluster_ips[0]],
        "ports": ports,
        "externalIPs": draw(some(pool.external_ips)),
        "internalTrafficPolicy": draw(LOCAL_OR_NOT),
        "externalTrafficPolicy": draw(LOCAL_OR_NOT),
        "sessionAffinity": draw(sampled(("None", "ClientIP"))),
    }
    status: dict[str, Any] = {}
    if kind == "LoadBalancer":
        spec["loadBalancerSourceRanges"] = draw(some(pool.ranges))
        ingress = [{"ip": ip, "ipMode": draw(IP_MODES)} for ip in draw(some(pool.balancers))]
        status = {"loadBalancer": {"ingress": ingress}}
    metadata = {"name": "web", "namespace": "default"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Service)


@st.composite
def slices(draw: st.DrawFn, pool: Pool, service: Service) -> tuple[EndpointSlice, ...]:
    """Up to three: some endpoints are in several of them, in different states; some ports are in none."""
    hinted = draw(sampled(("nobody", "some", "all")))
    return tuple(draw(_slice(pool, service, name, hinted)) for name in draw(sampled(("", "a", "ab", "abc"))))


@cache
def of_port(pool: Pool, number: int) -> st.SearchStrategy[list[Backend]]:
    return st.lists(st.sampled_from([b for b in pool.backends if b.port == number]), max_size=3, unique=True)


@st.composite
def _slice(draw: st.DrawFn, pool: Pool, service: Service, name: str, hinted: str) -> EndpointSlice:
    number = draw(sampled(tuple(sorted({backend.port for backend in pool.backends}))))
    chosen = draw(st.lists(st.sampled_from(service.spec.ports or ()), max_size=2, unique=True))
    backends = draw(of_port(pool, number))
    document = {
        "metadata": {"name": f"web-{name}", "namespace": "default", "labels": {SERVICE_NAME_LABEL: "web"}},
        "addressType": pool.family,
        "ports": [{"name": port.name, "protocol": port.protocol, "port": number} for port in chosen],
        "endpoints": [draw(_endpoint(backend, hinted)) for backend in backends],
    }
    return msgspec.convert(document, EndpointSlice)


@st.composite
def _endpoint(draw: st.DrawFn, backend: Backend, hinted: str) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    if hinted == "all" or (hinted == "some" and draw(BOOLEANS)):
        hints["forZones"] = [{"name": draw(sampled(("east", "west")))}]
        if draw(BOOLEANS):
            hints["forNodes"] = [{"name": draw(sampled(tuple(sorted(NODES.values()))))}]
    return {
        "addresses": [backend.address],
        "nodeName": NODES[backend.local],
        "conditions": draw(CONDITIONS),
        **({"hints": hints} if hints else {}),
    }


@st.composite
def resolved(draw: st.DrawFn, pool: Pool) -> Sequence[Entry]:
    """What `NODE` does for a drawn Service."""
    service = draw(services(pool))
    return resolve(service, draw(slices(pool, service)), NODE, pool.family)
