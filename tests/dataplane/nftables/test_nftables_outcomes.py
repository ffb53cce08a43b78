"""The printed program means what the compiled one does; what the walk refuses to answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane import meaning
from tests.dataplane.meaning import Where
from tests.dataplane.nftables.strategies_nft import configs, policy
from tests.dataplane.strategies import V4, V6, Pool, hosts, packets, tables

from clusterip.dataplane.flow import NotModelled
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.delta import program
from clusterip.dataplane.nftables.outcomes import walk
from clusterip.dataplane.nftables.plane import NFTables
from clusterip.dataplane.node import FromCIDR, Host
from clusterip.rulesets.nft import parse
from clusterip.rulesets.nft.text import table_text
from clusterip.services.route import Delivered, Packet, Source
from clusterip.services.table import Backend, Entry, PortName


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_the_printed_program_means_the_same(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    config, host = data.draw(configs(pool)), data.draw(hosts(pool))
    plane, where = NFTables(config, host), Where(policy(config, host), host, config.service_cidrs)
    pieces = [plane.compile(entry) for entry in entries]
    (printed,) = parse.read(table_text(program(pieces, config))).values
    packet = data.draw(packets(pool, host, entries))
    assert walk(printed, packet, host) == meaning.nftables(entries, packet, where)


@pytest.mark.parametrize("rule", ["limit rate 5/minute", "log", "meta mark set 1", "tcp flags syn", "queue to 1"])
def test_a_rule_that_the_proxy_never_writes_is_refused_not_skipped(rule: str) -> None:
    text = f"table ip clusterip {{\n\tchain a {{\n\t\ttype nat hook prerouting priority -100;\n\t\t{rule}\n\t}}\n}}\n"
    (table,) = parse.read(text).values
    with pytest.raises(NotModelled):
        walk(table, Packet(Source.POD, "10.244.1.2", "10.96.0.10", 80), Host(frozenset()))


def test_every_backend_of_a_spread_is_an_outcome() -> None:
    backends = tuple(Backend(f"10.244.1.{n}", 80) for n in range(1, 9))
    entry = Entry(PortName("default", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", cluster=backends, has_backends=True)
    plane = NFTables(Config(detector=FromCIDR("10.244.0.0/16")), Host(frozenset()))
    found = plane.outcomes([plane.compile(entry)], Packet(Source.OUTSIDE, "203.0.113.5", "10.96.0.10", 80))
    assert found == {Delivered(b.address, 80, True) for b in backends}
