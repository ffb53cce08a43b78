"""A packet's way from node to node, in cells worked out by hand. Pure."""

import ipaddress

import msgspec
import pytest
from tests.e2e.matrix.world import MEANING, NOWHERE, REFUSED, SILENT, Answer, Client, Frontend, Node, Setting

from clusterip.lab.check.plan import World
from clusterip.model.objects import EndpointSlice, Service
from clusterip.services.route import Source

PACKETS = sorted(MEANING.keys() - {"ipvs"})  # what IPVS mode does otherwise has tests of its own
NODES = tuple(
    Node(f"node-{n}", "", {"IPv4": f"192.168.50.1{n}"}, {"IPv4": f"10.244.{n}.1"})  # each with its pods' gateway
    for n in (1, 2)
)
POD = Client("visitor-1", Source.POD, "node-1", {"IPv4": "10.244.1.9"})
BACKEND = Client("red-2", Source.POD, "node-2", {"IPv4": "10.244.2.2"})
NODE = Client("node-1", Source.NODE, "node-1", {"IPv4": "192.168.50.11"})
OUTSIDE = Client("outside", Source.OUTSIDE, "", {"IPv4": "203.0.113.5"})
VIP, PORT, NODE_PORT = "10.96.0.10", 80, 30080


def setting(mode: str, **spec: object) -> Setting:
    """One Service over one pod, on node-2."""
    service = {
        "metadata": {"name": "s01", "namespace": "matrix"},
        "spec": {
            "type": "NodePort",
            "clusterIP": VIP,
            "ports": [{"name": "p0", "port": PORT, "nodePort": NODE_PORT}],
            **spec,
        },
    }
    piece = {
        "metadata": {"name": "s01-a", "namespace": "matrix", "labels": {"kubernetes.io/service-name": "s01"}},
        "addressType": "IPv4",
        "ports": [{"name": "p0", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.2.2"], "nodeName": "node-2"}],
    }
    world = World((msgspec.convert(service, Service),), (msgspec.convert(piece, EndpointSlice),))
    entrances = [(ipaddress.ip_network("10.96.0.0/16"), "node-1")]
    backends = {("10.244.2.2", 8080): "red-2:8080"}
    return Setting(mode, world, NODES, (POD, BACKEND, NODE, OUTSIDE), entrances, ("10.96.0.0/16",), backends)


def seen(given: Setting, client: Client, address: str, port: int) -> frozenset[Answer]:
    return given.cell(client, Frontend("", address, port, "TCP", "IPv4"), address).expected


def red(saw: str) -> frozenset[Answer]:
    return frozenset({Answer("red-2:8080", saw)})


@pytest.mark.parametrize("mode", PACKETS)
def test_who_is_seen_is_who_asked_or_the_node_that_chose(mode: str) -> None:
    plain = setting(mode)
    assert seen(plain, POD, VIP, PORT) == red("visitor-1")
    assert seen(plain, NODE, VIP, PORT) == red("node-1")
    assert seen(plain, OUTSIDE, VIP, PORT) == red("node-1")
    assert seen(plain, OUTSIDE, "192.168.50.12", NODE_PORT) == red("node-2")
    assert seen(plain, POD, "192.168.50.12", NODE_PORT) == red("node-2")
    sockets = mode == "ebpf"  # which keep the client's address
    assert seen(plain, POD, "192.168.50.11", NODE_PORT) == red("visitor-1" if sockets else "node-1")
    assert seen(plain, BACKEND, VIP, PORT) == red("red-2" if sockets else "node-2")


@pytest.mark.parametrize("mode", PACKETS)
def test_another_nodes_pod_is_a_stranger_to_a_local_policy(mode: str) -> None:
    local = setting(mode, externalTrafficPolicy="Local")
    assert seen(local, POD, "192.168.50.12", NODE_PORT) == red("visitor-1")
    assert seen(local, OUTSIDE, "192.168.50.11", NODE_PORT) == {SILENT}
    assert seen(local, POD, "192.168.50.11", NODE_PORT) == red("visitor-1")
    assert seen(setting(mode, internalTrafficPolicy="Local"), POD, VIP, PORT) == {SILENT}


def test_what_no_service_has_is_each_modes_own_to_answer() -> None:
    for mode, wrong_port, unused in (
        ("iptables", NOWHERE, NOWHERE),
        ("nftables", frozenset({REFUSED}), frozenset({SILENT})),
    ):
        assert seen(setting(mode), POD, VIP, 81) == wrong_port
        assert seen(setting(mode), POD, "10.96.0.99", PORT) == unused
        assert seen(setting(mode), POD, "192.168.50.12", 30099) == {REFUSED}


def test_a_node_port_on_loopback_is_for_some_modes() -> None:
    by_mode = {mode: seen(setting(mode), NODE, "127.0.0.1", NODE_PORT) for mode in MEANING}
    assert by_mode == {
        "iptables": red("node-1"),
        "ebpf": red("node-1"),
        "nftables": frozenset({REFUSED}),
        "ipvs": frozenset({REFUSED}),
    }


def test_a_pod_that_is_gone_answers_nobody() -> None:
    gone = setting("nftables")
    lost = Setting(gone.mode, gone.world, gone.nodes, gone.clients, gone.entrances, gone.service_cidrs, {})
    assert seen(lost, POD, VIP, PORT) == NOWHERE
