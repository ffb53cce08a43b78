"""Ordered changes of the kernel's table: from whatever is there to the whole, and from one state to the next. Pure.

A transaction is all or nothing, but a packet on its way looks up twice, and may see two states. So what a verdict leads
to comes in a transaction before it, and goes in one after it. Replacing one endpoint by another needs no such care.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables.book import Book, Shift
from clusterip.dataplane.nftables.compile import SWITCHED, Element, Key, Piece
from clusterip.dataplane.nftables.config import TABLE, Config
from clusterip.rulesets.nft import values as v
from clusterip.services.table import Backend
from clusterip.services.tracker import Change


@dataclass(frozen=True, slots=True)
class DeleteTable:
    pass


@dataclass(frozen=True, slots=True)
class AddTable:
    pass


@dataclass(frozen=True, slots=True)
class AddSet:
    """One that is there, and is alike, stays."""

    set: v.Set


@dataclass(frozen=True, slots=True)
class DeleteSet:
    name: str


@dataclass(frozen=True, slots=True)
class FlushSet:
    name: str


@dataclass(frozen=True, slots=True)
class AddChain:
    """Without its rules. One that is there, and hooks in alike, stays."""

    chain: v.Chain


@dataclass(frozen=True, slots=True)
class FlushChain:
    name: str


@dataclass(frozen=True, slots=True)
class AddRules:
    chain: v.Chain


@dataclass(frozen=True, slots=True)
class DeleteChain:
    name: str


@dataclass(frozen=True, slots=True)
class AddElements:
    set: str
    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class DeleteElements:
    set: str
    keys: tuple[Key, ...]


Step: TypeAlias = (
    AddTable
    | DeleteTable
    | AddSet
    | DeleteSet
    | FlushSet
    | AddChain
    | FlushChain
    | AddRules
    | DeleteChain
    | AddElements
    | DeleteElements
)
Transaction: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    transactions: tuple[Transaction, ...] = ()  # none is empty
    elements: int = 0  # added or removed
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the fixed sets, after a load

    def __bool__(self) -> bool:
        return bool(self.transactions)


@dataclass(frozen=True, slots=True)
class Installed:
    """What of our table is in the kernel: names, and the sizes of sets (0: none given)."""

    there: bool = False
    chains: frozenset[str] = frozenset()
    sets: Mapping[str, int] = field(default_factory=dict)


LEAST_SIZE = 1024  # elements of a set; the kernel gives it a fixed number of buckets, 8 bytes each
GROWTH = 4  # a set is made this many times as large as it needs to be


def numbers(book: Book, config: Config) -> Counter[str]:
    """How many elements each fixed set is to hold."""
    return book.sizes + Counter(element.set for element in own_elements(config))


def sizes(held: Counter[str], config: Config) -> dict[str, int]:
    """How large each fixed set is made to hold so many: powers of two."""
    needs = {found.name: max(LEAST_SIZE, GROWTH * held[found.name]) for found in c.sets(config)}
    return {name: 1 << (need - 1).bit_length() for name, need in needs.items()}


def delta(shift: Shift) -> Delta:
    """Every transaction leaves connections that are not concerned alone."""
    verdicts = [e for e in shift.elements if _set(e) in SWITCHED]
    others = [e for e in shift.elements if _set(e) not in SWITCHED]
    replaced = [e for e in others if e.before and e.after]
    first = (
        *(AddSet(s.after) for s in shift.sets if s.after),
        *_chains(shift),
        *_delete(e.before for e in replaced),
        *_add(e.after for e in others),
    )
    switch = (*_delete(e.before for e in verdicts), *_add(e.after for e in verdicts))
    last = (
        *_delete(e.before for e in others if e.after is None),
        *_gone(shift),
    )
    transactions = tuple(t for t in (first, switch, last) if t)
    return Delta(transactions, len(shift.elements))


def _set(change: Change[Element]) -> str:
    element = change.after or change.before
    assert element is not None, "a change has a side"
    return element.set


def _chains(shift: Shift) -> Iterable[Step]:
    """All of them before the rules that lead to them."""
    yield from (AddChain(x.after) for x in shift.chains if x.after and not x.before)
    for change in shift.chains:
        if change.after:
            if change.before:
                yield FlushChain(change.after.name)
            yield AddRules(change.after)


def _gone(shift: Shift) -> Iterable[Step]:
    """Rules first: a chain that another leads to, or a set that a rule reads, cannot go."""
    gone = [x.before for x in shift.chains if x.before and not x.after]
    yield from (FlushChain(chain.name) for chain in gone)
    yield from (DeleteChain(chain.name) for chain in gone)
    yield from (DeleteSet(s.before.name) for s in shift.sets if s.before and not s.after)


def _delete(elements: Iterable[Element | None]) -> Iterable[Step]:
    return (DeleteElements(name, tuple(e.key for e in found)) for name, found in _by_set(elements).items())


def _add(elements: Iterable[Element | None]) -> Iterable[Step]:
    return (AddElements(name, tuple(found)) for name, found in _by_set(elements).items())


def _by_set(elements: Iterable[Element | None]) -> Mapping[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for element in elements:
        if element is not None:
            found.setdefault(element.set, []).append(element)
    return found


def own_elements(config: Config) -> tuple[Element, ...]:
    """Those that no entry calls for."""
    return tuple(Element(c.NODE_PORT_ADDRESSES, (a,)) for a in dict.fromkeys(config.served_addresses or ()))


def load(book: Book, installed: Installed, config: Config) -> Delta:
    """From whatever is there to exactly what the book holds, in one transaction.

    Sets that are there keep their place, so that no packet finds them missing: they are emptied and filled. Only one
    that is too small is made anew, and all rules with it.
    """
    held = numbers(book, config)
    wanted = sizes(held, config)
    small = {n for n, size in installed.sets.items() if n in wanted and size < held[n]}
    kept = {n: size for n, size in installed.sets.items() if n in wanted and n not in small}
    fixed = [replace(s, size=kept.get(s.name, wanted[s.name])) for s in c.sets(config)]
    chains = (*c.fixed(config), *book.chains)
    names, set_names = {x.name for x in chains}, {s.name for s in (*fixed, *book.sets)}
    elements = [*own_elements(config), *book.elements()]
    steps = (
        AddTable(),
        *(FlushChain(name) for name in sorted(installed.chains)),
        *(FlushSet(s.name) for s in fixed if s.name in installed.sets),
        *(DeleteSet(name) for name in sorted(installed.sets.keys() - set_names | small)),
        *(AddSet(s) for s in (*fixed, *book.sets)),
        *(AddChain(chain) for chain in chains),
        *(AddRules(chain) for chain in chains),
        *_add(elements),
        *(DeleteChain(name) for name in sorted(installed.chains - names)),
    )
    return Delta((steps,), len(elements), {s.name: s.size for s in fixed})


def rebuild(load: Delta) -> Delta:
    """The same where what is there is of another make: without it. A packet may find nothing for a moment."""
    steps = (s for s in load.transactions[0] if isinstance(s, AddTable | AddSet | AddChain | AddRules | AddElements))
    return Delta(((AddTable(), DeleteTable(), *steps),), load.elements, load.sizes)


def overflows(shift: Shift, book: Book, sizes: Mapping[str, int]) -> bool:
    """A set would not hold what is added before anything goes. `sizes`: of the sets in the kernel."""
    added = Counter(e.after.set for e in shift.elements if e.after is not None and e.before is None)
    return any(book.sizes[name] + count > sizes.get(name, 0) for name, count in added.items())


def program(pieces: Collection[Piece], config: Config) -> v.Table:
    """The whole table as a value."""
    return table(Book.of(pieces), config)


def table(book: Book, config: Config) -> v.Table:
    elements = _by_set((*own_elements(config), *book.elements()))
    wanted = sizes(numbers(book, config), config)
    fixed = (replace(s, size=wanted[s.name]) for s in c.sets(config))
    held = {
        s.name: replace(s, elements=tuple(map(element_value, elements.get(s.name, ())))) for s in (*fixed, *book.sets)
    }
    chains = {chain.name: chain for chain in (*c.fixed(config), *book.chains)}
    return v.Table("ip6" if config.ipv6 else "ip", TABLE, chains, held)


def element_value(element: Element) -> v.Element:
    key = tuple(_part(part) for part in element.key)
    value: v.Expression | v.Verdict | None
    match element.value:
        case Backend(address, port):
            value = v.Concat((v.Address(address), v.Number(port)))
        case other:
            value = other
    return v.Element(key[0] if len(key) == 1 else v.Concat(key), value, element.comment)


def _part(part: str | int) -> v.Expression:
    if isinstance(part, int):
        return v.Number(part)
    return v.Word(part.lower()) if part in ("TCP", "UDP", "SCTP") else v.Address(part)
