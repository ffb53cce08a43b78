"""What the kernel holds against what it should hold: what others did to our table. Pure."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables.book import Book
from clusterip.dataplane.nftables.compile import Element
from clusterip.dataplane.nftables.config import TABLE, Config
from clusterip.dataplane.nftables.delta import numbers, own_elements
from clusterip.dataplane.nftables.encode import hook_bytes, key_bytes, value_bytes
from clusterip.dataplane.nftables.expressions import statement
from clusterip.rulesets.nft import values as v

SHOWN = 3  # elements that are named, of each set

_ATTRIBUTE = struct.Struct("=HH")
_NESTED, _TYPE = 0x8000, 0x3FFF


@dataclass(frozen=True, slots=True)
class SeenChain:
    hook: bytes  # hook, priority, policy and type, as `hook_bytes` writes them; b"": only jumps lead here
    rules: tuple[bytes, ...]  # expressions, as the kernel gives them back


@dataclass(frozen=True, slots=True)
class Shape:
    """Our table as the kernel has it, but for the elements: milliseconds, however many there are."""

    there: bool = False
    dormant: bool = False  # none of its chains is called
    chains: Mapping[str, SeenChain] = field(default_factory=dict)
    sets: Mapping[str, int | None] = field(default_factory=dict)  # how many elements; None: the kernel does not say

    @property
    def counted(self) -> bool:
        """The kernel says how many elements there are (since 6.16)."""
        return None not in self.sets.values()


@dataclass(frozen=True, slots=True)
class Seen:
    """All of it."""

    shape: Shape = field(default_factory=Shape)
    elements: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)  # key -> value, by fixed set


def compare_shape(shape: Shape, book: Book, config: Config) -> tuple[str, ...]:
    """What somebody else did to our table, a line each, as far as shape and numbers show it."""
    said = list(_compared_shape(shape, book, config))
    held = numbers(book, config)
    for found in c.sets(config):
        count, wanted = shape.sets.get(found.name), held[found.name]
        if count not in (None, wanted):
            said.append(f"set {found.name}: it has {count} elements, and should have {wanted}")
    return tuple(said)


def compare(seen: Seen, book: Book, config: Config) -> tuple[str, ...]:
    """The same, element by element; (): the table is as it should be."""
    said = list(_compared_shape(seen.shape, book, config))
    elements: dict[str, list[Element]] = {found.name: [] for found in c.sets(config)}
    for element in (*own_elements(config), *book.elements()):
        elements[element.set].append(element)
    for name, wanted in elements.items():
        said += _compared_set(name, wanted, seen.elements.get(name, {}) if name in seen.shape.sets else None)
    return tuple(said)


def _compared_shape(seen: Shape, book: Book, config: Config) -> Iterator[str]:
    ip = "ip6" if config.ipv6 else "ip"
    if not seen.there:
        yield f"table {ip} {TABLE}: it is gone"
        return
    if seen.dormant:
        yield f"table {ip} {TABLE}: it is dormant"
    yield from _compared_chains({chain.name: chain for chain in (*c.fixed(config), *book.chains)}, seen, ip)
    wanted = {found.name for found in (*c.sets(config), *book.sets)}
    yield from (f"set {name}: it is gone" for name in sorted(wanted - seen.sets.keys()))
    yield from (f"set {name}: nobody asked for it" for name in sorted(seen.sets.keys() - wanted))


def _compared_chains(chains: Mapping[str, v.Chain], seen: Shape, ip: str) -> Iterator[str]:
    for name, chain in chains.items():
        there = seen.chains.get(name)
        if there is None:
            yield f"chain {name}: it is gone"
        elif there.hook != hook_bytes(chain.hook):
            yield f"chain {name}: its hook, priority, policy or type is not ours"
        elif not _has_rules(there.rules, chain, ip):
            yield f"chain {name}: its rules are not ours"
    yield from (f"chain {name}: nobody asked for it" for name in sorted(seen.chains.keys() - chains.keys()))


@lru_cache(maxsize=1 << 15)
def _has_rules(there: tuple[bytes, ...], chain: v.Chain, ip: str) -> bool:
    """The kernel gives a rule back in the same bytes each time, so what has been compared once need not be again."""
    wanted = [b"".join(statement(s, ip) for s in rule.statements) for rule in chain.rules]
    return len(wanted) == len(there) and all(map(contains, there, wanted))


def _compared_set(name: str, wanted: Iterable[Element], there: Mapping[bytes, bytes] | None) -> Iterator[str]:
    if there is None:  # it is gone, which has been said
        return
    left = dict(there)
    missing = []
    for element in wanted:
        if left.pop(key_bytes(name, element.key), None) != value_bytes(element.value):
            missing.append(" . ".join(map(str, element.key)).lower())
    for count, what, examples in (
        (len(missing), "gone or changed", f": {', '.join(missing[:SHOWN])}"),
        (len(left), "nobody asked for", ""),
    ):
        if count:
            yield f"set {name}: {count} element{'s' if count > 1 else ''} {what}{examples}"


def contains(found: bytes, wanted: bytes) -> bool:
    """The kernel gives back all attributes that it was given, in any order, and adds some of its own. Of a list's
    items, which have one number, each must match the one at its place."""
    there = list(_attributes(found))
    by_kind: dict[int, list[bytes]] = {}
    for kind, payload in there:
        by_kind.setdefault(kind & _TYPE, []).append(payload)
    asked: dict[int, int] = {}
    for kind, payload in _attributes(wanted):
        number = kind & _TYPE
        place = asked.get(number, 0)
        asked[number] = place + 1
        having = by_kind.get(number, [])
        if place >= len(having):
            return False
        matches = contains(having[place], payload) if kind & _NESTED else having[place] == payload
        if not matches:
            return False
    return all(len(by_kind[number]) == count for number, count in asked.items())


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    position, end = 0, len(body)
    while position + 4 <= end:
        size, kind = _ATTRIBUTE.unpack_from(body, position)
        if size < 4:
            return
        yield kind, body[position + 4 : position + size]
        position += (size + 3) & ~3
