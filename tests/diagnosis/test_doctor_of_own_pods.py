"""Pods of a node that its routes do not lead to, in a diagnosis and in a trace."""

from fractions import Fraction

import pytest
from tests.diagnosis.clothes import WEB_RULES, findings
from tests.diagnosis.dumps import RUNNING, manifest, pod, ready, service, slice_of

from clusterip.diagnosis.doctor import diagnose
from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.trace import Tracer
from clusterip.rulesets.recognise import read

NODE = manifest(
    """
    apiVersion: v1
    kind: Node
    metadata: {name: node-1}
    status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
    """
)
ADDRESSES = """2: eth0: <UP> mtu 1500
    inet 192.168.50.11/24 scope global eth0
3: cip0: <UP> mtu 1500
    inet 10.244.1.1/24 scope global cip0
"""
ROUTES = "default via 192.168.50.1 dev eth0\n10.244.2.0/24 via 192.168.50.12 dev eth0\n"
TO_PODS = "10.244.1.0/24 dev cip0 proto kernel scope link src 10.244.1.1\n"
SIX = "default via fd00:50::1 dev eth0 metric 1024\n"
OURS = pod("web-1", "app: web", RUNNING, "nodeName: node-1, containers: [{name: c}]")
THEIRS = pod("web-2", "app: web", RUNNING.replace("10.244.1.5", "10.244.2.6"), "nodeName: node-2, containers: []")


def told(*texts: str, node: str = "node-1") -> list[str]:
    found = findings(NODE, ADDRESSES, *texts, node=node)
    return [f"{f.object}: {f.message}" for f in found if f.id == "no-route-to-pod"]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ((ROUTES + TO_PODS, OURS, THEIRS), ""),
        ((ROUTES, OURS, THEIRS), "node node-1: By the API default/web-1 (10.244.1.5) runs on node-1"),
        ((ROUTES, OURS, THEIRS), "packets to them leave by eth0 to 192.168.50.1."),
        ((ROUTES.partition("\n")[2], OURS), "there is no route"),
        ((ROUTES, THEIRS), ""),  # behind another node it may be anywhere
        ((ROUTES, OURS.replace("nodeName: node-1", "nodeName: node-1, hostNetwork: true")), ""),
        ((ROUTES, OURS.replace("phase: Running", "phase: Succeeded")), ""),
        ((OURS,), ""),  # nothing is known of routes
        ((SIX, OURS), ""),  # nor of those of its family
        ((ROUTES + SIX, OURS.replace("10.244.1.5", "fd00:1:1::5")), "leave by eth0 to fd00:50::1"),
    ],
)
def test_a_pod_of_the_node_is_behind_a_link_of_its_own(texts: tuple[str, ...], says: str) -> None:
    found = told(*texts)
    assert len(found) == bool(says)
    assert says in "".join(found)


def test_of_a_node_that_is_not_named_nothing_is_said() -> None:
    assert told(ROUTES, OURS, node="") == []


def test_another_nodes_routes_say_nothing() -> None:
    """Bundles of two nodes, each in a folder of its own; and files of both in one folder, which nothing tells apart."""
    other = ADDRESSES.replace("192.168.50.11", "192.168.50.12").replace("10.244.1.1", "10.244.2.1")
    for one, two in (("node-1/", "node-2/"), ("", "")):
        files = {
            f"{two}a2.txt": other, f"{two}r2.txt": "10.244.1.0/24 via 192.168.50.11 dev eth0\n",
            f"{one}a.txt": ADDRESSES, f"{one}r.txt": ROUTES + TO_PODS, "objects.yaml": NODE + OURS + THEIRS,
        }  # fmt: skip
        inputs = [read(name, text.encode()) for name, text in files.items()]
        assert "no-route-to-pod" not in {f.id for f in diagnose(inputs, "node-1").findings}
        inputs = [read(n, t.replace(TO_PODS, "").encode()) for n, t in files.items()]
        assert ("no-route-to-pod" in {f.id for f in diagnose(inputs, "node-1").findings}) == bool(one)


@pytest.mark.parametrize("lost", [True, False])
def test_a_trace_says_so_of_the_backends_that_are_lost(lost: bool) -> None:
    objects = service("web", "10.96.0.20") + slice_of("web", f"{ready('10.244.1.5')}, {ready('10.244.2.6')}")
    texts = (WEB_RULES, NODE, ADDRESSES, ROUTES + ("" if lost else TO_PODS), OURS, THEIRS, objects)
    facts = merge((read(f"file-{n}", text.encode()) for n, text in enumerate(texts)), "node-1")
    found = [f for f in Tracer(facts).ask("pod:10.244.1.9", "10.96.0.20:80").findings if f.id == "no-route-to-pod"]
    assert [f.share for f in found] == ([Fraction(1, 2)] if lost else [])
