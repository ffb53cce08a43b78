"""What sockets take and what they leave to the dataplane beneath, case by case."""

from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.plane import EBPF
from clusterip.services.route import Delivered, Outcomes, Packet, Passed, Source
from clusterip.services.table import Backend, Entry, PortName

PASSED = frozenset({Passed()})


ENTRY = Entry(
    PortName("default", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.10",
    node_port=30080,
    cluster=(Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080)),
    has_backends=True,
)
CONFIG = Config("IPv4", ("192.168.50.11",))


def outcome(entry: Entry, address: str, port: int = 80, source: Source = Source.POD) -> Outcomes:
    plane = EBPF(CONFIG)
    return plane.outcomes([plane.compile(entry)], Packet(source, "10.244.1.9", address, port, entry.protocol))


def test_a_node_port_on_loopback_is_for_the_nodes_own_processes() -> None:
    assert outcome(ENTRY, "127.0.0.1", 30080) == PASSED
    assert outcome(ENTRY, "127.0.0.1", 30080, Source.NODE) == {
        Delivered("10.244.1.2", 8080, True),
        Delivered("10.244.2.2", 8080, True),
    }
    assert outcome(ENTRY, "192.168.50.11", 30080) == outcome(ENTRY, "10.96.0.10")


def test_a_port_without_a_service_is_left_to_the_dataplane_beneath() -> None:
    assert outcome(ENTRY, "10.96.0.10", 81) == PASSED
