"""Deltas lead from one program to the next, and no packet falls into the gap."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.nftables.model import Model, meaning
from tests.dataplane.nftables.strategies_nft import configs
from tests.dataplane.strategies import V4, V6, Pool, entries, hosts, packets, tables

from clusterip.dataplane.nftables import delta as d
from clusterip.dataplane.nftables.book import Book
from clusterip.dataplane.nftables.compile import Element, Piece, compile_entry
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.outcomes import walk
from clusterip.rulesets.nft import values as v
from clusterip.services.route import Delivered, Outcome, Packet
from clusterip.services.table import Backend, Entry, EntryKey, Frontend, PortName
from clusterip.services.tracker import Change

POOLS = pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)


def compiled(table: Mapping[EntryKey, Entry], config: Config) -> dict[EntryKey, Piece]:
    return {key: compile_entry(entry, config) for key, entry in table.items()}


def changes(before: Mapping[EntryKey, Piece], after: Mapping[EntryKey, Piece]) -> list[Change[Piece]]:
    return [Change(before.get(k), after.get(k)) for k in sorted(before.keys() | after.keys())]


def loaded(book: Book, config: Config) -> Model:
    model = Model()
    for transaction in d.load(book, d.Installed(), config).transactions:
        model = model.commit(transaction)
    return model


@st.composite
def colliding(draw: st.DrawFn, pool: Pool) -> Mapping[EntryKey, Entry]:
    """Two Services may claim the same address and port; who has it is not promised, but nothing may break."""
    names = (PortName("default", "web", "http"), PortName("default", "web", "dns"), PortName("other", "web", ""))
    found = [entry for name in names if (entry := draw(st.none() | entries(pool, name)))]
    return {entry.key: entry for entry in found}


@POOLS
@given(data=st.data())
def test_deltas_and_a_load_lead_to_the_same_program(pool: Pool, data: st.DataObject) -> None:
    config = data.draw(configs(pool))
    history = data.draw(st.lists(colliding(pool), min_size=2, max_size=5))
    have = compiled(history[0], config)
    book = Book.of(have.values())
    model = loaded(book, config)
    for table in history[1:]:
        want = compiled(table, config)
        steps = changes(have, want)
        shift = book.shift(steps)
        for transaction in d.delta(shift).transactions:
            model = model.commit(transaction)
        book.write(steps, shift)
        have = want
        assert meaning(model.table()) == meaning(d.program(have.values(), config))
        assert +book.sizes == +Book.of(have.values()).sizes
    for transaction in d.load(book, model.installed(), config).transactions:
        model = model.commit(transaction)
    assert meaning(model.table()) == meaning(d.table(book, config))


@POOLS
@given(data=st.data())
def test_a_load_needs_to_know_only_names(pool: Pool, data: st.DataObject) -> None:
    """Whatever an earlier run left, with another configuration perhaps."""
    first, second = data.draw(configs(pool)), data.draw(configs(pool))
    model = loaded(Book.of(compiled(data.draw(tables(pool)), first).values()), first)
    book = Book.of(compiled(data.draw(tables(pool)), second).values())
    for transaction in d.load(book, model.installed(), second).transactions:
        model = model.commit(transaction)
    assert meaning(model.table()) == meaning(d.table(book, second))


@POOLS
@given(data=st.data())
def test_no_packet_falls_between_two_transactions(pool: Pool, data: st.DataObject) -> None:
    """A packet may read its verdict before a transaction and its endpoint after it. An address that goes is the last of
    its Service to go: until then it leads where the Service leads now."""
    config, host = data.draw(configs(pool)), data.draw(hosts(pool))
    before, after = data.draw(tables(pool)), data.draw(tables(pool))
    have, want = compiled(before, config), compiled(after, config)
    book = Book.of(have.values())
    states = [loaded(book, config)]
    for transaction in d.delta(book.shift(changes(have, want))).transactions:
        states.append(states[-1].commit(transaction))
    kept = {key: with_addresses(after[key], entry) if key in after else entry for key, entry in before.items()}
    lingering = loaded(Book.of(compiled({**after, **kept}, config).values()), config)
    everybody = [*before.values(), *after.values()]
    for packet in data.draw(st.lists(packets(pool, host, everybody), min_size=1, max_size=3)):
        allowed = frozenset[Outcome]().union(
            *(walk(s.table(), packet, host) for s in (states[0], lingering, states[-1]))
        )
        claiming = {e.key for e in everybody if any(claims(f, packet) for f in e.frontends())}
        backends = {(b.address, b.port) for e in everybody if e.key in claiming for b in (*e.cluster, *e.local)}
        for earlier, later in pairwise(states):
            for found in (walk(torn(earlier, later), packet, host), walk(later.table(), packet, host)):
                assert {type(o) for o in found} <= {type(o) for o in allowed}
                assert {(o.address, o.port) for o in found if isinstance(o, Delivered)} <= backends


def with_addresses(entry: Entry, others: Entry) -> Entry:
    return replace(
        entry,
        cluster_ip=others.cluster_ip,
        node_port=others.node_port,
        external_ips=others.external_ips,
        load_balancer_ips=others.load_balancer_ips,
    )


def claims(frontend: Frontend, packet: Packet) -> bool:
    return (frontend.port, frontend.protocol) == (packet.port, packet.protocol) and (
        frontend.address in ("", packet.address)
    )


def torn(earlier: Model, later: Model) -> v.Table:
    """Verdicts of one moment, endpoints of the next."""
    first, second = earlier.table(), later.table()
    endpoints = {name: found for name, found in second.sets.items() if name.endswith("endpoints") and found.typeof}
    return v.Table(first.family, first.name, first.chains, {**first.sets, **endpoints})


WEB = Entry(
    PortName("default", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.10",
    cluster=tuple(Backend(f"10.244.2.{n}", 80) for n in range(1, 4)),
    has_backends=True,
)


def shifted(before: Entry | None, after: Entry | None) -> d.Delta:
    config = Config()
    old, new = (compile_entry(e, config) if e else None for e in (before, after))
    book = Book.of([old] if old else [])
    return d.delta(book.shift([Change(old, new)]))


def test_a_change_of_nothing_is_no_transaction() -> None:
    assert not shifted(WEB, WEB)


def test_another_backend_is_one_transaction_of_its_elements() -> None:
    other = replace(WEB, cluster=(*WEB.cluster[:2], Backend("10.244.9.9", 80)))
    key = ("10.96.0.10", "TCP", 80, 2)
    element = Element("endpoints", key, Backend("10.244.9.9", 80), "default/web:http")
    assert shifted(WEB, other).transactions == (
        (d.DeleteElements("endpoints", (key,)), d.AddElements("endpoints", (element,))),
    )


def test_a_backend_fewer_is_switched_before_it_is_removed() -> None:
    first, switch, last = shifted(WEB, replace(WEB, cluster=WEB.cluster[:2])).transactions
    assert {type(step) for step in first} == {d.AddChain, d.AddRules}
    assert {step.set for step in switch if isinstance(step, d.AddElements | d.DeleteElements)} == {"service-ips"}
    assert last == (d.DeleteElements("endpoints", (("10.96.0.10", "TCP", 80, 2),)),)


def test_a_number_of_backends_that_comes_again_finds_its_chain() -> None:
    config = Config()
    three, two = (compile_entry(replace(WEB, cluster=WEB.cluster[:n]), config) for n in (3, 2))
    book = Book.of([three])
    seen = []
    for change in (Change(three, two), Change(two, three)):
        shift = book.shift([change])
        seen.append([x.after.name for x in shift.chains if x.after])
        book.write([change], shift)
    assert seen == [["pick-2"], []]
    assert {chain.name for chain in Book.of([three]).chains} == {"pick-3"}, "a load takes spare ones away"


def test_what_belongs_to_a_sticky_service_goes_with_it() -> None:
    sticky = replace(WEB, affinity_seconds=60, cluster=WEB.cluster[:1])
    _, last = shifted(sticky, None).transactions
    of_it = "default/web/tcp/http"
    assert d.DeleteChain(f"sticky-{of_it}") in last
    assert d.DeleteChain(f"endpoint-{of_it}__10.244.2.1/80") in last
    assert d.DeleteSet(f"clients-{of_it}__10.244.2.1/80/1m") in last


def test_a_backend_more_is_added_before_it_is_switched_to() -> None:
    first, switch = shifted(WEB, replace(WEB, cluster=(*WEB.cluster, Backend("10.244.9.9", 80)))).transactions
    added = [e.key for step in first if isinstance(step, d.AddElements) for e in step.elements]
    assert added == [("10.96.0.10", "TCP", 80, 3)]
    assert [step.set for step in switch if isinstance(step, d.AddElements)] == ["service-ips"]


def test_an_operator_finds_the_service_of_each_element() -> None:
    everything = replace(
        WEB, external_ips=("203.0.113.80",), node_port=30080, external_local=True, local=WEB.cluster[:1]
    )
    book = Book.of(compile_entry(e, Config()) for e in (everything, replace(WEB, protocol="UDP", has_backends=False)))
    named = {e.comment for e in book.elements() if e.set != "hairpins"}  # a pod may serve many
    assert named == {"default/web", "default/web:http"}


def test_an_address_passes_from_one_service_to_another() -> None:
    config = Config()
    old = compile_entry(WEB, config)
    new = compile_entry(replace(WEB, name=PortName("default", "next", "http")), config)
    book = Book.of([old])
    model = loaded(book, config)
    for transaction in d.delta(book.shift([Change(None, new), Change(old, None)])).transactions:
        model = model.commit(transaction)
    assert meaning(model.table()) == meaning(d.program([new], config))


def test_a_full_set_is_seen_before_the_kernel_refuses() -> None:
    config = Config()
    book = Book.of([compile_entry(WEB, config)])
    more = compile_entry(replace(WEB, cluster=tuple(Backend(f"10.244.3.{n}", 80) for n in range(1, 9))), config)
    shift = book.shift([Change(compile_entry(WEB, config), more)])
    sizes = d.sizes(book.sizes, config)
    assert not d.overflows(shift, book, sizes)
    assert d.overflows(shift, book, {**sizes, "endpoints": 7})


def test_a_node_may_have_more_addresses_than_a_set_holds_at_least() -> None:
    few = Config(node_port_addresses=("192.168.50.11",))
    many = replace(few, node_port_addresses=tuple(f"10.1.{n // 256}.{n % 256}" for n in range(2000)))
    model = loaded(Book(), few)
    for transaction in d.load(Book(), model.installed(), many).transactions:
        model = model.commit(transaction)
    assert len(model.elements["node-port-addresses"]) == 2000
    assert meaning(model.table()) == meaning(d.table(Book(), many))


def test_a_load_makes_too_small_a_set_anew() -> None:
    config = Config()
    model = loaded(Book(), config)
    for name in ("endpoints", "service-ips"):
        model.sets[name] = replace_size_of(model.sets[name], 2)
    book = Book.of([compile_entry(WEB, config)])
    for transaction in d.load(book, model.installed(), config).transactions:
        model = model.commit(transaction)
    assert (model.sets["endpoints"].size, model.sets["service-ips"].size) == (1024, 2)


def replace_size_of(found: v.Set, size: int) -> v.Set:
    return v.Set(found.name, found.types, found.values, found.typeof, found.flags, found.timeout, size)
