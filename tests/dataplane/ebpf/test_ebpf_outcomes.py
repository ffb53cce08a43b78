"""The law of every dataplane, for sockets: what they take goes where the specification says; the rest they leave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, hosts, packets, tables

from clusterip.dataplane.base import Compiler
from clusterip.dataplane.ebpf.compile import Piece
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import Delta
from clusterip.dataplane.ebpf.layout import Contents
from clusterip.dataplane.ebpf.plane import EBPF
from clusterip.services.route import (
    Delivered,
    Dropped,
    Outcome,
    Outcomes,
    Packet,
    Passed,
    Policy,
    Rejected,
    Source,
    route,
)
from clusterip.services.table import Backend, Entry, PortName

PASSED = frozenset({Passed()})


def configs(pool: Pool) -> st.SearchStrategy[Config]:
    return st.builds(
        Config,
        family=st.just(pool.family),
        node_port_addresses=st.sampled_from([(), (pool.node_ip,), (pool.node_ip, pool.loopback)]),
        localhost_node_ports=st.booleans(),
    )


def policy(config: Config, pool: Pool, packet: Packet) -> Policy:
    """Loopback is the node's own processes' alone."""
    served = {a for a in config.node_port_addresses if a != pool.loopback}
    if config.localhost_node_ports and packet.source is Source.NODE:
        served.add(pool.loopback)
    return Policy(frozenset(served), pool.node_ip, detects_pods=True)


def with_own_source(outcome: Outcome, packet: Packet) -> Outcome:
    """A socket connects with its client's own address: the node's on the node, never another."""
    match outcome:
        case Delivered(address, port):
            return Delivered(address, port, packet.source is Source.NODE)
        case _:
            return outcome


def restricted(entries: list[Entry], packet: Packet) -> bool:
    """To a load balancer's address that not everybody may reach."""
    asked = (packet.port, packet.protocol)
    return any(
        e.source_ranges and packet.address in e.load_balancer_ips and asked == (e.port, e.protocol) for e in entries
    )


def expected(entries: list[Entry], packet: Packet, rule: Policy) -> Outcomes:
    if packet.source is Source.OUTSIDE or packet.protocol == "SCTP":
        return PASSED
    found = route(entries, packet, rule)
    if found == {Dropped()} or (restricted(entries, packet) and found != {Rejected()}):
        return PASSED
    return frozenset(with_own_source(o, packet) for o in found)


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_a_socket_goes_where_the_spec_says(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    config = data.draw(configs(pool))
    plane: Compiler[Piece, Contents, Delta] = EBPF(config)
    pieces = [plane.compile(entry) for entry in entries]
    for packet in data.draw(st.lists(packets(pool, data.draw(hosts(pool)), entries), min_size=1, max_size=6)):
        assert plane.outcomes(pieces, packet) == expected(entries, packet, policy(config, pool, packet))


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
