"""The law of every dataplane, with the exceptions that IPVS mode has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.ipvs.strategies_ipvs import as_the_kernel_sends, configs
from tests.dataplane.strategies import V4, V6, Pool, hosts, packets, tables

from clusterip.dataplane.base import Compiler
from clusterip.dataplane.ipvs import Config, Delta, Piece, Seen
from clusterip.dataplane.ipvs.plane import IPVS
from clusterip.dataplane.node import FromCIDR, Host
from clusterip.services.route import Delivered, Dropped, Outcomes, Packet, Passed, Policy, Rejected, Source, route
from clusterip.services.table import Backend, Entry, Frontend, FrontendKind, PortName


def expected(entries: list[Entry], packet: Packet, config: Config, host: Host) -> Outcomes:
    """`route` where IPVS mode has no rule of its own; what it has is said in `outcomes`."""
    detects = config.detector is not None
    policy = Policy(frozenset(config.served_addresses), config.node_ip, detects, config.masquerade_all)
    for entry in entries:
        for frontend in entry.frontends():
            here = {frontend.address} if frontend.address else policy.node_port_addresses
            if packet.address in here and (packet.port, packet.protocol) == (frontend.port, frontend.protocol):
                return answer(entry, frontend, packet, policy)
    bound = {a for e in entries for a in (e.cluster_ip, *e.external_ips, *e.load_balancer_ips)} - host.addresses
    health = {e.health_check_node_port for e in entries}
    refused = packet.address in bound and packet.port not in health
    return frozenset({Rejected() if refused else Passed()})


def answer(entry: Entry, frontend: Frontend, packet: Packet, policy: Policy) -> Outcomes:
    local = entry.external_local if frontend.kind.external else entry.internal_local
    backends = (entry.local or entry.cluster) if local else entry.cluster
    from_node = packet.source is Source.NODE
    if frontend.kind is FrontendKind.LOAD_BALANCER and not admitted(entry, packet, policy):
        asked = not from_node or (packet.source_address == packet.address and bool(backends))
        if asked:
            return frozenset({Dropped()})
    if not backends:
        return frozenset({Rejected()})
    masquerade = not entry.external_local
    if frontend.kind is FrontendKind.CLUSTER_IP:
        own = packet.source is Source.POD
        to_itself = not policy.detects_pods and packet.source_address == packet.address
        masquerade = policy.masquerade_all or (policy.detects_pods and not own) or to_itself
    found = frozenset(Delivered(b.address, b.port, masquerade or b.address == packet.source_address) for b in backends)
    if not local and not from_node:
        assert found == route([entry], packet, policy), "without a Local policy there is no exception to the spec"
    return found


def admitted(entry: Entry, packet: Packet, policy: Policy) -> bool:
    """Source ranges, as the specification has them: seen where there is a backend."""
    probe = (Backend("192.0.2.99", 1),)
    fields = {f: getattr(entry, f) for f in Entry.__slots__ if f not in ("cluster", "local", "has_backends")}
    return route([Entry(**fields, cluster=probe, local=probe, has_backends=True)], packet, policy) != {Dropped()}


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_a_packet_goes_where_the_spec_and_its_exceptions_say(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    host = data.draw(hosts(pool))
    config = data.draw(configs(pool, host))
    plane: Compiler[Piece, Seen, Delta] = IPVS(config, host)
    pieces = [plane.compile(entry) for entry in entries]
    for packet in data.draw(st.lists(packets(pool, host, entries), min_size=1, max_size=4)):
        sent = as_the_kernel_sends(packet, config) if data.draw(st.booleans()) else packet
        assert plane.outcomes(pieces, sent) == expected(entries, sent, config, host)


HOST = Host(frozenset({"192.168.50.11"}))
CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"), node_addresses=("192.168.50.11",))
HERE, THERE = Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080)
POD = Packet(Source.POD, "10.244.1.9", "10.96.0.10", 80)
OUTSIDE = Packet(Source.OUTSIDE, "203.0.113.5", "192.168.50.11", 30080)


def web(**more: object) -> Entry:
    given: dict[str, object] = {"cluster": (HERE, THERE), "has_backends": True, **more}
    return Entry(PortName("shop", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", **given)  # type: ignore[arg-type]


def seen(entry: Entry, packet: Packet) -> Outcomes:
    plane = IPVS(CONFIG, HOST)
    return plane.outcomes([plane.compile(entry)], packet)


def test_a_local_policy_without_a_backend_here_gives_way_to_the_clusters() -> None:
    entry = web(node_port=30080, external_local=True, cluster=(THERE,))
    assert seen(entry, OUTSIDE) == {Delivered("10.244.2.2", 8080, False)}


def test_a_port_of_no_service_on_a_cluster_ip_is_refused() -> None:
    assert seen(web(), Packet(Source.POD, "10.244.1.9", "10.96.0.10", 22)) == {Rejected()}


def test_a_service_without_backends_refuses() -> None:
    assert seen(web(cluster=(), has_backends=False), POD) == {Rejected()}


def test_a_backend_that_reaches_itself_is_masqueraded() -> None:
    found = seen(web(), Packet(Source.POD, "10.244.1.2", "10.96.0.10", 80))
    assert found == {Delivered("10.244.1.2", 8080, True), Delivered("10.244.2.2", 8080, False)}


def test_no_node_port_answers_on_loopback() -> None:
    plane = IPVS(Config(node_addresses=("127.0.0.1", "192.168.50.11")), HOST)
    places = {server.at.address for server in plane.compile(web(node_port=30080)).servers}
    assert places == {"10.96.0.10", "192.168.50.11"}


def test_the_node_is_dropped_where_the_source_ranges_leave_it_out() -> None:
    entry = web(load_balancer_ips=("192.0.2.200",), source_ranges=("203.0.113.0/24",))
    own = Packet(Source.NODE, "192.0.2.200", "192.0.2.200", 80)
    assert seen(entry, own) == {Dropped()}
    assert seen(entry, Packet(Source.OUTSIDE, "203.0.113.5", "192.0.2.200", 80)) != {Dropped()}
    assert seen(entry, Packet(Source.OUTSIDE, "198.18.0.1", "192.0.2.200", 80)) == {Dropped()}
