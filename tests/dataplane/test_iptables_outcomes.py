"""The law of every dataplane: a packet goes where the specification says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, configs, hosts, packets, policy, tables

from clusterip.dataplane.base import Compiler
from clusterip.dataplane.iptables import Config, Delta, FromCIDR, Installed, Piece
from clusterip.dataplane.iptables.outcomes import Host, NotModelled, walk
from clusterip.dataplane.iptables.plane import IPTables
from clusterip.rulesets.iptables import parse
from clusterip.services.route import Delivered, Dropped, Outcomes, Packet, Passed, Policy, Rejected, Source, route
from clusterip.services.table import Backend, Entry, PortName


def expected(entries: list[Entry], packet: Packet, rule: Policy, host: Host) -> Outcomes:
    """`route`, but for the two exceptions that `outcomes` names."""
    found = route(entries, packet, rule)
    here = packet.address in host.addresses or packet.address in (V4.loopback, V6.loopback)
    external = packet.address not in {e.cluster_ip for e in entries}
    if packet.source is Source.NODE and external and not here and found == {Rejected()}:
        return frozenset({Passed()})
    if here and found == {Passed()}:
        for entry in entries:
            if (entry.node_port, entry.protocol) == (packet.port, packet.protocol):
                missing = entry.has_backends and entry.external_local and not entry.local
                return frozenset({Dropped()} if missing else {Passed()} if entry.has_backends else {Rejected()})
    return found


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_a_packet_goes_where_the_spec_says(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    config, host = data.draw(configs(pool)), data.draw(hosts(pool))
    plane: Compiler[Piece, Installed, Delta] = IPTables(config, host)
    pieces = [plane.compile(entry) for entry in entries]
    for packet in data.draw(st.lists(packets(pool, host, entries), min_size=1, max_size=4)):
        assert plane.outcomes(pieces, packet) == expected(entries, packet, policy(config, host, pool), host)


@pytest.mark.parametrize(
    "rule", ["-m limit --limit 5/min -j ACCEPT", "-j LOG", "-g KUBE-MARK-MASQ", "-m time --weekdays Sat"]
)
def test_a_rule_that_the_proxy_never_writes_is_refused_not_skipped(rule: str) -> None:
    ruleset = parse(f"*nat\n:KUBE-MARK-MASQ - [0:0]\n-A PREROUTING {rule}\nCOMMIT\n")
    with pytest.raises(NotModelled):
        walk(ruleset, Packet(Source.POD, "10.244.1.2", "10.96.0.10", 80), Host(frozenset()))


def test_every_backend_of_a_spread_is_an_outcome() -> None:
    backends = tuple(Backend(f"10.244.1.{n}", 80) for n in range(1, 9))
    entry = Entry(PortName("default", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", cluster=backends, has_backends=True)
    plane = IPTables(Config(detector=FromCIDR("10.244.0.0/16")), Host(frozenset()))
    found = plane.outcomes([plane.compile(entry)], Packet(Source.OUTSIDE, "203.0.113.5", "10.96.0.10", 80))
    assert found == {Delivered(b.address, 80, True) for b in backends}
