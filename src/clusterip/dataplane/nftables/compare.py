"""What the kernel holds against what it should hold: what others did to our table. Pure."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables.book import Book
from clusterip.dataplane.nftables.compile import Element
from clusterip.dataplane.nftables.config import TABLE, Config
from clusterip.dataplane.nftables.delta import own_elements
from clusterip.dataplane.nftables.encode import hook_bytes, key_bytes, value_bytes
from clusterip.dataplane.nftables.expressions import statement
from clusterip.rulesets.nft import values as v

SHOWN = 3  # elements that are named, of each set

_ATTRIBUTE = struct.Struct("=HH")
_NESTED, _TYPE = 0x8000, 0x3FFF


@dataclass(frozen=True, slots=True)
class SeenChain:
    hook: bytes  # number and priority; b"": only jumps lead here
    rules: tuple[bytes, ...]  # expressions, as the kernel gives them back


@dataclass(frozen=True, slots=True)
class Seen:
    """Our table, as the kernel has it."""

    there: bool = False
    dormant: bool = False  # none of its chains is called
    chains: Mapping[str, SeenChain] = field(default_factory=dict)
    sets: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)  # key -> value; of the fixed ones


def compare(seen: Seen, book: Book, config: Config) -> tuple[str, ...]:
    """What somebody else did to our table, a line each; (): it is as it should be."""
    ip = "ip6" if config.ipv6 else "ip"
    if not seen.there:
        return (f"table {ip} {TABLE}: it is gone",)
    said = [f"table {ip} {TABLE}: it is dormant"] if seen.dormant else []
    chains = {chain.name: chain for chain in (*c.fixed(config), *book.chains)}
    said += _compared_chains(chains, seen, ip)
    elements: dict[str, list[Element]] = {found.name: [] for found in (*c.sets(config), *book.sets)}
    for element in (*own_elements(config), *book.elements()):
        elements[element.set].append(element)
    for name, wanted in elements.items():
        said += _compared_set(name, wanted, seen)
    said += [f"set {name}: nobody asked for it" for name in sorted(seen.sets.keys() - elements.keys())]
    return tuple(said)


def _compared_chains(chains: Mapping[str, v.Chain], seen: Seen, ip: str) -> Iterator[str]:
    for name, chain in chains.items():
        there = seen.chains.get(name)
        wanted = [b"".join(statement(s, ip) for s in rule.statements) for rule in chain.rules]
        if there is None:
            yield f"chain {name}: it is gone"
        elif there.hook != hook_bytes(chain.hook):
            yield f"chain {name}: it hooks in elsewhere"
        elif len(wanted) != len(there.rules) or not all(map(contains, there.rules, wanted)):
            yield f"chain {name}: its rules are not ours"
    yield from (f"chain {name}: nobody asked for it" for name in sorted(seen.chains.keys() - chains.keys()))


def _compared_set(name: str, wanted: Iterable[Element], seen: Seen) -> Iterator[str]:
    there = seen.sets.get(name)
    if there is None:
        yield f"set {name}: it is gone"
        return
    if name.startswith(c.CLIENTS):
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
