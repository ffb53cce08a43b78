"""The table that our nftables mode writes is equal to the service table; one thing of it changed is not."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.dataplane.nftables.strategies_nft import configs
from tests.dataplane.strategies import V4, V6, Pool, tables
from tests.examples import share

from clusterip.dataplane.nftables.compile import compile_entry
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.delta import program
from clusterip.dataplane.node import FromCIDR, FromInterface
from clusterip.diagnosis.facts import Facts, NftRules
from clusterip.diagnosis.verify.premises import Premises
from clusterip.diagnosis.verify.verify import verify_table
from clusterip.rulesets.nft import values as n
from clusterip.services.table import Entry, PortName


def told(table: n.Table) -> Facts:
    return Facts(nft=(NftRules(n.Ruleset({n.TableName(table.family, table.name): table})),))


def written(entries: list[Entry], config: Config) -> n.Table:
    return program([compile_entry(entry, config) for entry in entries], config)


def assumed(config: Config, pool: Pool) -> Premises:
    detector = config.detector
    return Premises(
        node="node-1",
        addresses=(pool.node_ip,),
        pod_networks=(detector.cidr,) if isinstance(detector, FromCIDR) else (),
        pod_interface=detector.pattern if isinstance(detector, FromInterface) else "",
        masquerade_all=config.masquerade_all,
        node_port_addresses=config.served_addresses,
    )


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@settings(max_examples=share(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_the_dataplane_writes_of_a_table_is_equal_to_it(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    config = replace(data.draw(configs(pool)), node_ip=pool.node_ip)
    found = verify_table(told(written(entries, config)), entries, assumed(config, pool), ipv6=pool.family == "IPv6")
    assert (found.differences, found.unproven) == ((), ())
    assert found.verdict == "equal"


WEB = Entry(
    PortName("demo", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", cluster=V4.backends[:3], has_backends=True, known=3
)
CONFIG = Config("IPv4", V4.node_ip, FromCIDR(V4.pod_range))


def without(table: n.Table, name: str, number: int) -> n.Table:
    """Without one element of a map."""
    held = table.sets[name].elements
    left = structs.replace(table.sets[name], elements=held[:number] + held[number + 1 :])
    return structs.replace(table, sets={**table.sets, name: left})


def test_every_element_of_every_map_counts() -> None:
    table = written([WEB], CONFIG)
    premises = assumed(CONFIG, V4)
    for name, found in table.sets.items():
        for number in range(len(found.elements)):
            changed = verify_table(told(without(table, name, number)), [WEB], premises, ipv6=False)
            assert changed.verdict == "different", (name, found.elements[number])


def test_a_chain_without_its_rules_is_found() -> None:
    table = written([WEB], CONFIG)
    chain = next(name for name, found in table.chains.items() if any(_rewrites(rule) for rule in found.rules))
    emptied = structs.replace(table, chains={**table.chains, chain: structs.replace(table.chains[chain], rules=())})
    found = verify_table(told(emptied), [WEB], assumed(CONFIG, V4), ipv6=False)
    assert found.verdict == "different"
    assert {d.object for d in found.differences} == {"service demo/web"}


def _rewrites(rule: n.Rule) -> bool:
    return any(isinstance(statement, n.Nat) and statement.kind == "dnat" for statement in rule.statements)
