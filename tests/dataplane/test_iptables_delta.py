"""Loads and deltas lead to the program, by a road on which no packet meets a gap."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, configs, hosts, packets, tables

from clusterip.dataplane.iptables import (
    Config,
    Counts,
    FromCIDR,
    Installed,
    Piece,
    Variant,
    compile_entry,
    delta,
    names,
)
from clusterip.dataplane.iptables.outcomes import walk
from clusterip.dataplane.iptables.program import complete
from clusterip.rulesets.iptables import Rule, Ruleset, empty, parse, restore, ruleset_text
from clusterip.services.route import Delivered, Dropped
from clusterip.services.table import Backend, Entry, EntryKey, PortName
from clusterip.services.tracker import Change

CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"))
SHARED = {names.SERVICES, names.EXTERNAL_SERVICES, names.NODE_PORTS, names.PROXY_FIREWALL}
variants = st.sampled_from(Variant)

Pieces = Mapping[EntryKey, Piece]


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Tables of a few entries must take several blocks, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "BLOCK_PIECES", 2)
        patch.setattr(delta, "BLOCK_CHANGES", 2)
        yield


def compiled(table: Mapping[EntryKey, Entry], config: Config) -> Pieces:
    return {key: compile_entry(entry, config) for key, entry in table.items()}


def changes(before: Pieces, after: Pieces) -> list[Change[Piece]]:
    return [Change(before.get(key), after.get(key)) for key in before.keys() | after.keys()]


def seen(ruleset: Ruleset) -> dict[tuple[str, str], list[Rule]]:
    """What counts: the order of rules, but in shared chains only that the tail comes last."""
    chains = {}
    for table in ruleset:
        for chain in table.chains.values():
            rules = list(chain.rules)
            if chain.name in SHARED:
                tail = [r for r in rules if "NOTE: this must be the last" in r.comment]
                assert rules[len(rules) - len(tail) :] == tail
                rules = sorted((r for r in rules if r not in tail), key=repr) + tail
            chains[table.name, chain.name] = rules
    return chains


def wanted(pieces: Pieces, config: Config) -> dict[tuple[str, str], list[Rule]]:
    return seen(restore(empty(), complete(pieces.values(), config)))


def installed(ruleset: Ruleset, config: Config) -> Installed:
    return delta.installed(ruleset_text(ruleset), config)


def blocks(text: str) -> list[str]:
    return re.findall(r"\*.*?\nCOMMIT\n", text, re.DOTALL)


def counted(ruleset: Ruleset) -> Counts:
    ours = {
        table.name: sum(len(c.rules) for c in table.chains.values() if c.name.startswith("KUBE-")) for table in ruleset
    }
    return Counts(ours["nat"], ours["filter"])


@given(tables(V4), tables(V4), configs(V4), variants)
def test_a_load_gives_the_program_from_whatever_was_there(
    before: Mapping[EntryKey, Entry], after: Mapping[EntryKey, Entry], config: Config, variant: Variant
) -> None:
    first = delta.load(compiled(before, config).values(), Installed(), config, variant)
    ruleset = restore(empty(), first.text)
    assert seen(ruleset) == wanted(compiled(before, config), config)
    second = delta.load(compiled(after, config).values(), installed(ruleset, config), config, variant)
    ruleset = restore(ruleset, second.text)
    assert seen(ruleset) == wanted(compiled(after, config), config)
    assert second.change == second.written == counted(ruleset)


@given(st.lists(tables(V4), min_size=2, max_size=4), configs(V4), variants)
def test_deltas_lead_from_table_to_table(
    history: list[Mapping[EntryKey, Entry]], config: Config, variant: Variant
) -> None:
    config = replace(config, large_cluster=False)
    have = compiled(history[0], config)
    loaded = delta.load(have.values(), Installed(), config, Variant.NFT)
    ruleset, total = restore(empty(), loaded.text), loaded.change
    for table in history[1:]:
        want = compiled(table, config)
        part = delta.delta(changes(have, want), config, variant=variant)
        ruleset, total, have = restore(ruleset, part.text), total + part.change, want
        assert seen(ruleset) == wanted(want, config)
        assert total == counted(ruleset)
        assert part.stale == frozenset()


@given(st.lists(tables(V4), min_size=2, max_size=4), configs(V4))
def test_a_large_cluster_removes_stale_chains_later(history: list[Mapping[EntryKey, Entry]], config: Config) -> None:
    config = replace(config, large_cluster=True)
    have = compiled(history[0], config)
    ruleset = restore(empty(), delta.load(have.values(), Installed(), config, Variant.NFT).text)
    stale: frozenset[str] = frozenset()
    for table in history[1:]:
        want = compiled(table, config)
        part = delta.delta(changes(have, want), config, stale)
        assert "-X" not in part.text
        ruleset, stale, have = restore(ruleset, part.text), part.stale, want
        kept = seen(ruleset)
        assert kept.keys() - wanted(want, config).keys() == {("nat", chain) for chain in stale}
    assert seen(restore(ruleset, delta.sweep(stale).text)) == wanted(have, config)


@given(tables(V4), tables(V4), configs(V4), st.data())
def test_on_the_way_a_packet_meets_the_old_outcome_or_the_new_and_nothing_else(
    before: Mapping[EntryKey, Entry], after: Mapping[EntryKey, Entry], config: Config, data: st.DataObject
) -> None:
    have, want = compiled(before, config), compiled(after, config)
    start = restore(empty(), delta.load(have.values(), Installed(), config, Variant.NFT).text)
    part = delta.delta(changes(have, want), config)
    end = restore(start, part.text)
    host = data.draw(hosts(V4))
    packet = data.draw(packets(V4, host, [*before.values(), *after.values()]))
    allowed = walk(start, packet, host) | walk(end, packet, host)
    if not all(isinstance(outcome, Delivered) for outcome in allowed):
        allowed |= {Dropped()}  # who is not served before or not after may have to wait: no gap for those who are
    ruleset = start
    for block in blocks(part.text):
        ruleset = restore(ruleset, block)
        assert walk(ruleset, packet, host) <= allowed


@given(tables(V4), configs(V4))
def test_a_change_of_nothing_writes_nothing(table: Mapping[EntryKey, Entry], config: Config) -> None:
    pieces = compiled(table, config)
    assert delta.delta(changes(pieces, pieces), config) == delta.Delta()


@given(tables(V4), tables(V4), configs(V4))
def test_a_delta_never_rewrites_a_shared_chain(
    before: Mapping[EntryKey, Entry], after: Mapping[EntryKey, Entry], config: Config
) -> None:
    part = delta.delta(changes(compiled(before, config), compiled(after, config)), config)
    for line in part.text.splitlines():
        command, _, rest = line.partition(" ")
        if line.startswith(":") or command in ("-A", "-X"):
            assert names.is_own_chain(command[1:] if line.startswith(":") else rest.split()[0])


@given(tables(V4), configs(V4))
def test_cleanup_leaves_nothing_but_what_kubelet_shares(table: Mapping[EntryKey, Entry], config: Config) -> None:
    foreign = "*nat\n:MINE - [0:0]\n-A OUTPUT -j MINE\nCOMMIT\n*filter\n-A INPUT -s 10.0.0.1/32 -j ACCEPT\nCOMMIT\n"
    start = restore(empty(), foreign)
    loaded = restore(start, delta.load(compiled(table, config).values(), Installed(), config, Variant.NFT).text)
    cleaned = restore(loaded, delta.cleanup(installed(loaded, config)).text)
    rest = {key: rules for key, rules in seen(cleaned).items() if key[1] != names.FIREWALL}
    rest = {key: [r for r in rules if names.FIREWALL not in repr(r.target)] for key, rules in rest.items()}
    assert rest == seen(start)


def test_foreign_rules_and_jumps_that_stand_are_left_alone() -> None:
    start = restore(empty(), delta.load((), Installed(), CONFIG, Variant.NFT).text)
    theirs = restore(start, "*filter\n-I INPUT -s 10.0.0.1/32 -j DROP\n-D FORWARD 1\nCOMMIT\n".replace(
        "-D FORWARD 1", '-D FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD'
    ))  # fmt: skip
    again = delta.load((), installed(theirs, CONFIG), CONFIG, Variant.NFT)
    assert [line for line in again.text.splitlines() if line.startswith("-I")] == [
        '-I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD'
    ]
    healed = restore(theirs, again.text)
    assert healed.rules("filter", "INPUT") == theirs.rules("filter", "INPUT")


def services(count: int, endpoints: int) -> Pieces:
    entries = (
        Entry(
            PortName("test", f"svc-{i}", "http"),
            "IPv4",
            "TCP",
            80,
            f"10.96.{i // 250}.{i % 250 + 1}",
            cluster=tuple(Backend(f"10.244.{i % 250}.{n + 1}", 8080) for n in range(endpoints)),
            has_backends=endpoints > 0,
            known=endpoints,
        )
        for i in range(count)
    )
    return compiled({e.key: e for e in entries}, CONFIG)


@pytest.mark.parametrize(
    ("count", "endpoints", "filter_rules", "nat_rules"),
    [
        (0, 0, 4, 5),
        (1, 0, 5, 5),
        (1, 1, 4, 10),
        (1, 2, 4, 13),
        (1, 10, 4, 37),
        (10, 0, 14, 5),
        (10, 1, 4, 55),
        (10, 2, 4, 85),
        (10, 10, 4, 325),
    ],
)
def test_rules_are_counted_as_kube_proxy_counts_them(
    count: int, endpoints: int, filter_rules: int, nat_rules: int
) -> None:
    full = delta.load(services(count, endpoints).values(), Installed(), CONFIG, Variant.LEGACY)
    assert full.written == full.change == Counts(nat=nat_rules, filter=filter_rules)


def test_the_nft_variant_gets_blocks_and_the_jumps_last() -> None:
    text = delta.load(services(5, 1).values(), Installed(), CONFIG, Variant.NFT).text
    nat = [block for block in blocks(text) if block.startswith("*nat")]
    assert [block.count(":KUBE-SVC-") for block in nat] == [0, 2, 2, 1, 0]
    assert [":KUBE-SERVICES" in block for block in nat] == [False, False, False, False, True]
    targets = re.findall(r"^-A KUBE-SERVICES .*-j (KUBE-SVC-\S+)$", nat[-1], re.MULTILINE)
    assert len(targets) == 5
    assert targets == sorted(targets, reverse=True)


def test_the_legacy_variant_pays_for_each_block_so_it_gets_few() -> None:
    text = delta.load(services(250, 1).values(), Installed(), CONFIG, Variant.LEGACY).text
    assert text.count("*nat") == 3


def test_one_more_endpoint_writes_its_chain_and_the_spread_only() -> None:
    [before], [after] = services(1, 3).values(), services(1, 4).values()
    part = delta.delta([Change(before, after)], CONFIG)
    assert part.text.count("\n:") == 2
    assert part.written == Counts(nat=2 + 1 + 4)
    assert part.change == Counts(nat=3)


def test_refusals_come_before_and_go_after() -> None:
    [none], [one] = services(1, 0).values(), services(1, 1).values()
    for pair, order in (((none, one), ["nat", "filter"]), ((one, none), ["filter", "nat"])):
        text = delta.delta([Change(*pair)], CONFIG).text
        assert re.findall(r"^\*(.*)$", text, re.MULTILINE) == order


def test_the_rule_that_counts_a_node_port_on_the_loopback_stays_before_the_one_that_takes_it() -> None:
    counting = replace(CONFIG, nfacct=True)
    backend = (Backend("10.244.1.2", 80),)
    entry = Entry(
        PortName("a", "b", ""), "IPv4", "TCP", 80, "10.96.0.1", node_port=30080, cluster=backend, has_backends=True
    )
    start = restore(empty(), delta.load((), Installed(), counting, Variant.NFT).text)
    part = delta.delta([Change(None, compile_entry(entry, counting))], counting)
    counted_first, taken = restore(start, part.text).rules("nat", names.NODE_PORTS)
    assert ("NfAcct" in repr(counted_first), "NfAcct" in repr(taken)) == (True, False)


def test_many_stale_chains_go_in_several_blocks_those_that_refer_first() -> None:
    chains: Iterable[str] = [f"KUBE-{kind}-{i:016}" for kind in ("SEP", "SVC", "EXT", "FW") for i in range(600)]
    text = delta.sweep(chains).text
    assert text.count("COMMIT") == 3
    gone = [line.split("-")[2] for line in text.splitlines() if line.startswith("-X")]
    assert [kind for kind, following in zip(gone, [*gone[1:], ""], strict=True) if kind != following] == [
        "FW",
        "EXT",
        "SVC",
        "SEP",
    ]


def test_a_saved_program_is_seen_in_full() -> None:
    ruleset = restore(empty(), complete(services(2, 2).values(), CONFIG))
    found = installed(ruleset, CONFIG)
    assert delta.load(services(2, 2).values(), found, CONFIG, Variant.NFT).text.count("\n-I ") == 0
    assert found.chains == {(t, c) for t, c in wanted(services(2, 2), CONFIG) if c.startswith("KUBE-")}
    assert parse(ruleset_text(ruleset)) == ruleset


@pytest.mark.parametrize(("variant", "blocks_of_nat"), [(Variant.NFT, 3), (Variant.LEGACY, 1)])
def test_many_changes_take_one_block_each_two_in_the_nft_variant_only(variant: Variant, blocks_of_nat: int) -> None:
    backends = (Backend("10.244.1.2", 80),)
    new = [
        Entry(PortName("ns", f"s{i}", ""), "IPv4", "TCP", 80, f"10.96.0.{i}", cluster=backends, has_backends=True)
        for i in range(5)
    ]
    text = delta.delta([Change(None, compile_entry(e, CONFIG)) for e in new], CONFIG, variant=variant).text
    assert text.count("*nat\n") == blocks_of_nat
