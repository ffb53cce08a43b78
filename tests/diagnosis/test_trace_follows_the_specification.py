"""The walk of the kernel's hooks, of rules as they are loaded, gives what the specification says of the table."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane import meaning
from tests.dataplane.meaning import Where
from tests.dataplane.strategies import V4, V6, Pool, configs, hosts, packets, policy, tables

from clusterip.dataplane.iptables import Config, compile_entry, complete
from clusterip.dataplane.iptables.outcomes import Host
from clusterip.diagnosis.facts import Facts, IptablesRules
from clusterip.diagnosis.outcomes import Reached
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.trace import Tracer
from clusterip.rulesets.host import Interface, InterfaceAddress, Interfaces, NextHop, Route, Routes
from clusterip.rulesets.iptables import parse
from clusterip.services.route import Delivered, Dropped, Outcome, Outcomes, Packet, Passed, Rejected, Source
from clusterip.services.table import Entry

KINDS = {Source.POD: "pod", Source.NODE: "node", Source.OUTSIDE: "outside"}


def facts(table: list[Entry], config: Config, host: Host, pool: Pool) -> Facts:
    """A node with the program of `table` and all addresses and routes known."""
    bits = 128 if pool.family == "IPv6" else 32
    addresses = tuple(InterfaceAddress(a, bits) for a in sorted(host.addresses))
    routes = (
        Route(pool.pod_range, hops=(NextHop("", "cip0"),)),
        Route("::/0" if bits == 128 else "0.0.0.0/0", hops=(NextHop("", "eth0"),)),
    )
    rules = parse(complete([compile_entry(entry, config) for entry in table], config))
    return Facts(
        iptables=(IptablesRules(rules, "nft", bits == 128),),
        interfaces=Interfaces((Interface("eth0", addresses=addresses),)),
        routes=Routes(routes),
    )


def outcomes(tracer: Tracer, packet: Packet, host: Host) -> tuple[list[Reached], Outcomes]:
    interface = {Source.POD: host.pod_interface, Source.NODE: "", Source.OUTSIDE: host.uplink}[packet.source]
    client = Client(KINDS[packet.source], packet.source_address, interface=interface)  # type: ignore[arg-type]
    found = tracer.walk(client, Target(packet.protocol.lower(), packet.address, packet.port)).found
    return list(found), frozenset(map(outcome, found))


def outcome(one: Reached) -> Outcome:
    packet = one.branch.packet
    match one.verdict:
        case "delivered":
            return Delivered(packet.destination, packet.destination_port, packet.source_rewritten)
        case "rejected":
            return Rejected()
        case "dropped":
            return Dropped()
        case "passed":
            return Passed()
        case "unknown":
            raise AssertionError(one.branch.note)


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_a_packet_goes_where_the_specification_says(pool: Pool, data: st.DataObject) -> None:
    table = list(data.draw(tables(pool)).values())
    config, host = data.draw(configs(pool)), data.draw(hosts(pool))
    tracer = Tracer(facts(table, config, host, pool))
    for packet in data.draw(st.lists(packets(pool, host, table), min_size=1, max_size=4)):
        found, ways = outcomes(tracer, packet, host)
        where = Where(policy(config, host, pool), host)
        assert ways == meaning.iptables(table, replace(packet, remembered=None), where)
        if (kept := meaning.iptables(table, packet, where)) != ways:
            assert kept <= {outcome(one) for one in found if one.remembered}
        fresh = [one for one in found if not one.remembered]
        assert sum(one.branch.probability for one in fresh) == 1
        assert all(c.kind == "affinity" for one in found for c in one.branch.when)
