"""Sets of clients: a kind of client at an address.

Three copies of the address space lie one behind the other, one a kind; a set of clients is a row of ranges in them.
So one walk through the rules serves every client there can be, and what rules ask of a source cuts the set in two.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, TypeAlias

from clusterip.services.route import Source

Sources: TypeAlias = tuple[tuple[int, int], ...]  # first and last of each range; sorted, apart from each other

KINDS = (Source.POD, Source.NODE, Source.OUTSIDE)
_COPY = 1 << 129  # where the copies begin: beyond every address
NOBODY: Sources = ()

# No client sends from here. Source: RFC 6890; the kernel drops them as martians.
_NOT_SOURCES = {
    False: ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3"),
    True: ("::/127", "ff00::/8"),
}


def split(sources: Sources, wanted: Sources) -> tuple[Sources, Sources]:
    """Those within `wanted`, and the others."""
    inside: list[tuple[int, int]] = []
    outside: list[tuple[int, int]] = []
    at, end = 0, len(wanted)
    for first, last in sources:
        while at < end and wanted[at][1] < first:
            at += 1
        here = at
        while here < end and wanted[here][0] <= last:
            low, high = wanted[here]
            if low > first:
                outside.append((first, low - 1))
                first = low
            if high >= last:
                inside.append((first, last))
                first = last + 1
                break
            inside.append((first, high))
            first = high + 1
            here += 1
        if first <= last:
            outside.append((first, last))
    return tuple(inside), tuple(outside)


def both(one: Sources, other: Sources) -> Sources:
    if not one or not other or one[-1][1] < other[0][0] or other[-1][1] < one[0][0]:
        return NOBODY
    if len(other) == 1 and other[0][0] <= one[0][0] and one[-1][1] <= other[0][1]:
        return one
    return one if one == other else split(one, other)[0]


def union(parts: Iterable[Sources]) -> Sources:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(r for part in parts for r in part):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def joined(parts: Sequence[Sources]) -> Sources | None:
    """The union of parts that have nothing in common; None: they have."""
    if len(parts) == 1:
        return parts[0]
    merged: list[tuple[int, int]] = []
    end = -2
    for first, last in sorted(r for part in parts for r in part):
        if first <= end:
            return None
        if first == end + 1:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
        end = last
    return tuple(merged)


@lru_cache(maxsize=1 << 18)
def number(address: str) -> int:
    parts = address.split(".")
    if len(parts) == 4:
        a, b, c, d = parts
        return int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)
    return int(ipaddress.ip_address(address))


@dataclass(frozen=True, slots=True)
class Clients:
    """Who may send packets that this node's rules judge."""

    ipv6: bool
    pods: Sources  # one kind each
    node: Sources
    outside: Sources
    pod_interface: str = ""  # what pods come in by, a name or a prefix and "+"; "": nothing tells them by it

    all: Sources = field(init=False)
    arriving: Sources = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "all", self.pods + self.node + self.outside)
        object.__setattr__(self, "arriving", self.pods + self.outside)

    @property
    def told_by_interface(self) -> Sources:
        """Those who come in by none that a rule may name besides: the node's own by none at all."""
        return self.pods + self.node if self.pod_interface else self.node

    def of(self, kind: Source) -> Sources:
        return {Source.POD: self.pods, Source.NODE: self.node, Source.OUTSIDE: self.outside}[kind]

    def within(self, networks: Iterable[str]) -> Sources:
        """Clients of every kind in these networks or at these addresses; those of the other family are nowhere."""
        found = [_range(n) for n in networks if (":" in n) == self.ipv6]
        return union(tuple((copy * _COPY + a, copy * _COPY + b) for a, b in found) for copy in range(len(KINDS)))

    def at(self, address: str) -> Sources:
        """Clients of every kind at one address; nobody if it is of the other family."""
        if (":" in address) != self.ipv6:
            return NOBODY
        at = number(address)
        return ((at, at), (_COPY + at, _COPY + at), (2 * _COPY + at, 2 * _COPY + at))


class _Told(Protocol):
    """What is known of a node; `premises.Premises` is one."""

    @property
    def addresses(self) -> tuple[str, ...]: ...
    @property
    def pod_networks(self) -> tuple[str, ...]: ...
    @property
    def pod_interface(self) -> str: ...


def clients(told: _Told, bound: Iterable[str] = (), *, ipv6: bool) -> Clients:
    """`bound`: addresses on a device of the node's beside its own: no packet comes in with such a source.

    A node of which no address is known may have every one that is no pod's.
    A source of the node's within the pods' networks (its bridge) is left out: nothing tells it from a pod's.
    """
    whole = (_range("::/0" if ipv6 else "0.0.0.0/0"),)
    possible = split(whole, union((_range(n),) for n in _NOT_SOURCES[ipv6]))[1]
    own = union((_range(a),) for a in told.addresses if (":" in a) == ipv6)
    networks = union((_range(n),) for n in told.pod_networks if (":" in n) == ipv6)
    devices = union((_range(a),) for a in bound if (":" in a) == ipv6)
    foreign = split(split(possible, own)[1], devices)[1]
    inside, outside = split(foreign, networks)
    if told.pod_interface:
        inside = foreign
    node = split(both(own, possible) if own else possible, networks)[1]
    return Clients(ipv6, inside, _copied(node, 1), _copied(outside, 2), told.pod_interface)


def _copied(sources: Sources, copy: int) -> Sources:
    return tuple((copy * _COPY + first, copy * _COPY + last) for first, last in sources)


def one_of_the_node(address: str) -> Sources:
    """The node's own processes that have this address as their source."""
    at = number(address)
    return _copied(((at, at),), KINDS.index(Source.NODE))


def kind_of(client: int) -> Source:
    return KINDS[client // _COPY]


def address_of(client: int, *, ipv6: bool) -> str:
    at = client % _COPY
    return str(ipaddress.IPv6Address(at) if ipv6 else ipaddress.IPv4Address(at))


@lru_cache(maxsize=1 << 12)
def _range(network: str) -> tuple[int, int]:
    found = ipaddress.ip_network(network, strict=False)
    return int(found.network_address), int(found.broadcast_address)
