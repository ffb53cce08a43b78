"""From one step of a page to the next by deltas alone, in models of the kernel: what stands then. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from tests.dataplane.ipvs.test_ipvs_delta import Kernel, assert_holds
from tests.dataplane.nftables.model import Model, meaning
from tests.dataplane.test_iptables_delta import seen, wanted
from tests.scenarios.meaning import entries, iptables_config, ipvs_config, nftables_config, socket_config
from tests.scenarios.page import Step

from clusterip.dataplane import iptables, ipvs, nftables
from clusterip.dataplane.ebpf import delta as sockets
from clusterip.dataplane.ebpf.compile import compile_entry as compile_for_sockets
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.dataplane.iptables import delta as texts
from clusterip.dataplane.ipvs import delta as commands
from clusterip.dataplane.nftables import delta as transactions
from clusterip.rulesets.iptables import empty, restore
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change

Table = Mapping[EntryKey, Entry]


def walk(dataplane: str, steps: Sequence[Step], family: Family) -> None:
    """Load the first step, change to each of the others: after each the kernel holds what a fresh load would write.

    The zone of a node that moves makes the proxy load everything, so such a step is loaded here, too.
    """
    tables = [{e.key: e for e in entries(step, family)} for step in steps]
    {"iptables": _iptables, "nftables": _nftables, "ipvs": _ipvs, "ebpf": _ebpf}[dataplane](steps[0], tables, family)


def _changes(before: Table, after: Table) -> Iterable[tuple[Entry | None, Entry | None]]:
    keys = sorted(before.keys() | after.keys())
    return [(before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)]


def _iptables(first: Step, tables: Sequence[Table], family: Family) -> None:
    config = iptables_config(first.node, family)
    have = {k: iptables.compile_entry(e, config) for k, e in tables[0].items()}
    ruleset = restore(empty(), texts.load(have.values(), iptables.Installed(), config, iptables.Variant.NFT).text)
    assert seen(ruleset) == wanted(have, config)
    for table in tables[1:]:
        want = {k: iptables.compile_entry(e, config) for k, e in table.items()}
        part = texts.delta([Change(have.get(k), want.get(k)) for k in sorted(have.keys() | want.keys())], config)
        ruleset, have = restore(ruleset, part.text), want
        assert seen(ruleset) == wanted(want, config)


def _nftables(first: Step, tables: Sequence[Table], family: Family) -> None:
    config = nftables_config(first.node, family)
    book = nftables.Book.of(nftables.compile_entry(e, config) for e in tables[0].values())
    model = Model()
    for transaction in transactions.load(book, transactions.Installed(), config).transactions:
        model = model.commit(transaction)
    before: Table = tables[0]
    for table in tables[1:]:
        changes = [
            Change(*(nftables.compile_entry(e, config) if e else None for e in pair))
            for pair in _changes(before, table)
        ]
        shift = book.shift(changes)
        for transaction in transactions.delta(shift).transactions:
            model = model.commit(transaction)
        book.write(changes, shift)
        before = table
        program = transactions.program([nftables.compile_entry(e, config) for e in table.values()], config)
        assert meaning(model.table()) == meaning(program)


def _ipvs(first: Step, tables: Sequence[Table], family: Family) -> None:
    config = ipvs_config(first.node, family)
    kernel = Kernel(config)
    book = ipvs.Book.of(ipvs.compile_entry(e, config) for e in tables[0].values())
    kernel.apply(commands.load(book, kernel.seen(), config))
    before: Table = tables[0]
    for table in tables[1:]:
        changes = [
            Change(*(ipvs.compile_entry(e, config) if e else None for e in pair)) for pair in _changes(before, table)
        ]
        change = commands.delta(book.shift(changes), config)
        kernel.apply(change)
        book.write(changes)
        book.retire(change.retired)
        before = table
        assert_holds(kernel, ipvs.Book.of(ipvs.compile_entry(e, config) for e in table.values()), config)


def _ebpf(first: Step, tables: Sequence[Table], family: Family) -> None:
    config = socket_config(first.node, family)
    pieces = [compile_for_sockets(e, config) for e in tables[0].values()]
    contents = sockets.applied(EMPTY, sockets.load(pieces, EMPTY).steps)
    before: Table = tables[0]
    for table in tables[1:]:
        changes = [
            Change(*(compile_for_sockets(e, config) if e else None for e in pair)) for pair in _changes(before, table)
        ]
        contents, before = sockets.applied(contents, sockets.delta(changes).steps), table
        fresh = [compile_for_sockets(e, config) for e in table.values()]
        assert contents == sockets.applied(EMPTY, sockets.load(fresh, EMPTY).steps)
