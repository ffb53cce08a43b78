"""What is in the kernel, counted by who needs it, and what a change of entries makes of it. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from clusterip.dataplane.ipvs.chains import Jump, Shape
from clusterip.dataplane.ipvs.compile import At, Piece, RealServer, VirtualServer
from clusterip.dataplane.ipvs.sets import Member, SetKind
from clusterip.services.table import EntryKey
from clusterip.services.tracker import Change

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Present:
    """A virtual server as it stands in the kernel."""

    at: At
    scheduler: str
    persistent: int = 0
    weights: Mapping[RealServer, int] = field(default_factory=dict)  # 0: takes no new connections

    @property
    def parameters(self) -> tuple[str, int]:
        return self.scheduler, self.persistent


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was found in the kernel, of one family; empty: nothing."""

    servers: Mapping[At, Present] = field(default_factory=dict)
    sets: frozenset[str] = frozenset()  # names of those that are there
    members: frozenset[Member] = frozenset()
    addresses: frozenset[str] = frozenset()  # bound to the dummy device
    device: bool = False
    chains: frozenset[tuple[str, str]] = frozenset()  # (table, chain), ours only
    jumps: frozenset[Jump] = frozenset()  # ours
    portals: bool = False  # iptables mode's rules are there, in chains that have the names of ours


@dataclass(frozen=True, slots=True)
class Shift:
    """From what stands to what shall stand. In `servers` the first is None where there was none, the second where
    there shall be none."""

    servers: tuple[tuple[Present | None, VirtualServer | None], ...] = ()
    gained: frozenset[Member] = frozenset()
    lost: frozenset[Member] = frozenset()
    bound: frozenset[str] = frozenset()
    unbound: frozenset[str] = frozenset()
    shape: Shape | None = None  # of the chains, if it changes


class Book:
    """Owned by one task. A virtual server that several entries claim is the one's whose key comes first."""

    def __init__(self) -> None:
        self.pieces: dict[EntryKey, Piece] = {}
        self.claims: dict[At, dict[EntryKey, VirtualServer]] = {}
        self.retired: dict[At, set[RealServer]] = {}  # real servers with weight 0, until their connections are gone
        self.members: Counter[Member] = Counter()
        self.kinds: Counter[SetKind] = Counter()  # of members, each once: which sets have any, without a look at all
        self.addresses: Counter[str] = Counter()
        self.drops: Counter[At] = Counter()

    def __repr__(self) -> str:
        return (
            f"Book(pieces={len(self.pieces)} servers={len(self.claims)} retired={sum(map(len, self.retired.values()))})"
        )

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> "Book":
        book = cls()
        book.write([Change(None, piece) for piece in pieces])
        return book

    @property
    def servers(self) -> Iterator[VirtualServer]:
        return (claim[min(claim)] for claim in self.claims.values())

    @property
    def shape(self) -> Shape:
        return Shape(frozenset(self.kinds), frozenset(self.drops))

    def shift(self, changes: Iterable[Change[Piece]]) -> Shift:
        """What `changes` would make of it."""
        listed = list(changes)
        members, addresses, drops = _differences(listed)
        gained, lost = _crossings(self.members, members)
        bound, unbound = _crossings(self.addresses, addresses)
        shape = self.shape
        if gained or lost or drops:
            after = self.kinds.copy()
            _add(after, _by_kind(gained, lost))
            dropped = (shape.drops | {at for at, more in drops.items() if self.drops[at] + more > 0}) - {
                at for at, more in drops.items() if self.drops[at] + more <= 0
            }
            shape = Shape(frozenset(after), dropped)
        servers = tuple(self._server_changes(listed))
        return Shift(servers, gained, lost, bound, unbound, shape if shape != self.shape else None)

    def _server_changes(self, changes: list[Change[Piece]]) -> Iterator[tuple[Present | None, VirtualServer | None]]:
        sides = [(piece, side) for c in changes for side, piece in enumerate((c.before, c.after)) if piece]
        claims = {s.at: dict(self.claims.get(s.at, {})) for piece, _ in sides for s in piece.servers}
        for piece, side in sides:
            for server in piece.servers:
                if side:
                    claims[server.at][piece.key] = server
                else:
                    claims[server.at].pop(piece.key, None)
        for at, claim in claims.items():
            before, after = self.claims.get(at), claim[min(claim)] if claim else None
            now = before[min(before)] if before else None
            if now != after:
                yield self._present(now), after

    def _present(self, server: VirtualServer | None) -> Present | None:
        if server is None:
            return None
        weights = dict.fromkeys(self.retired.get(server.at, ()), 0) | dict.fromkeys(server.reals, 1)
        return Present(server.at, server.scheduler, server.persistent, weights)

    def retire(self, retired: Mapping[At, frozenset[RealServer]]) -> None:
        """What a delta that is in the kernel now says of the virtual servers it touched."""
        for at, reals in retired.items():
            if reals:
                self.retired[at] = set(reals)
            else:
                self.retired.pop(at, None)

    def swept(self, gone: Iterable[tuple[At, RealServer]]) -> None:
        """Retired real servers that were deleted."""
        for at, real in gone:
            self.retired[at].discard(real)
            if not self.retired[at]:
                del self.retired[at]

    def write(self, changes: Iterable[Change[Piece]]) -> None:
        """They are in the kernel now."""
        listed = list(changes)
        members, addresses, drops = _differences(listed)
        _add(self.kinds, _by_kind(*_crossings(self.members, members)))
        _add(self.members, members)
        _add(self.addresses, addresses)
        _add(self.drops, drops)
        for change in listed:
            if change.before:
                self._forget(change.before)
        for change in listed:
            if change.after:
                self.pieces[change.after.key] = change.after
                for server in change.after.servers:
                    self.claims.setdefault(server.at, {})[change.after.key] = server

    def _forget(self, piece: Piece) -> None:
        del self.pieces[piece.key]
        for server in piece.servers:
            claim = self.claims[server.at]
            claim.pop(piece.key, None)
            if not claim:
                del self.claims[server.at]


def _differences(changes: Iterable[Change[Piece]]) -> tuple[Counter[Member], Counter[str], Counter[At]]:
    """How many more need each member, address and drop."""
    members: Counter[Member] = Counter()
    addresses: Counter[str] = Counter()
    drops: Counter[At] = Counter()
    for change in changes:
        for piece, sign in ((change.before, -1), (change.after, 1)):
            if piece:
                for member in piece.members:
                    members[member] += sign
                for address in piece.addresses:
                    addresses[address] += sign
                for at in piece.drops:
                    drops[at] += sign
    return members, addresses, drops


def _add(counted: Counter[K], more: Mapping[K, int]) -> None:
    for item, number in more.items():
        counted[item] += number
        if not counted[item]:
            del counted[item]


def _crossings(counted: Counter[K], more: Mapping[K, int]) -> tuple[frozenset[K], frozenset[K]]:
    """What nobody needed and somebody does, and the reverse."""
    gained = frozenset(item for item, number in more.items() if number > 0 and not counted[item])
    lost = frozenset(item for item, number in more.items() if number < 0 and counted[item] + number <= 0)
    return gained, lost


def _by_kind(gained: Iterable[Member], lost: Iterable[Member]) -> Counter[SetKind]:
    """How many more members the sets have."""
    counted = Counter(member.kind for member in gained)
    counted.subtract(member.kind for member in lost)
    return counted
