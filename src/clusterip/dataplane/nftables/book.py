"""What is in the kernel, by whom it is wanted. Pure, but for the book's own pages.

Chains and members are shared by entries, and two entries may claim the same address and port: the book counts who
wants what, so that a change of one entry can be told from the whole at the cost of that entry.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from clusterip.dataplane.nftables.compile import Claim, Element, Front, Key, Piece, counts, elements
from clusterip.rulesets.nft import values as v
from clusterip.services.table import EntryKey
from clusterip.services.tracker import Change

Place: TypeAlias = tuple[str, Key]  # of an element: set, key
N = TypeVar("N", v.Chain, v.Set)  # what has a name
Held: TypeAlias = dict[str, tuple[N, int]]  # by name, and how many want it


@dataclass(frozen=True, slots=True)
class Shift:
    """What changes in the kernel: only what differs."""

    elements: tuple[Change[Element], ...] = ()
    chains: tuple[Change[v.Chain], ...] = ()
    sets: tuple[Change[v.Set], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.elements or self.chains or self.sets)


@dataclass(slots=True)  # not frozen: the one place where what is in the kernel is kept
class Book:
    """Owned by one task."""

    pieces: dict[EntryKey, Piece] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)  # elements, by set
    _claims: dict[Claim, tuple[EntryKey, ...]] = field(default_factory=dict)  # sorted: the first one has it
    _chains: Held[v.Chain] = field(default_factory=dict)
    _sets: Held[v.Set] = field(default_factory=dict)
    _members: dict[Place, Counter[str]] = field(default_factory=dict)  # how many want it, by comment

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> "Book":
        book = cls()
        for piece in pieces:
            book._add(piece)
        for claim, keys in book._claims.items():
            for name, count in counts(_front(book.pieces[keys[0]], claim)):
                book.sizes[name] += count
        for name, _ in book._members:
            book.sizes[name] += 1
        return book

    def __repr__(self) -> str:
        return f"Book({len(self.pieces)} pieces, {self.sizes.total()} elements)"

    @property
    def chains(self) -> Iterable[v.Chain]:
        """Those that entries call for."""
        return (chain for chain, _ in self._chains.values())

    @property
    def sets(self) -> Iterable[v.Set]:
        return (found for found, _ in self._sets.values())

    def elements(self) -> Iterator[Element]:
        for claim, keys in self._claims.items():
            yield from elements(_front(self.pieces[keys[0]], claim))
        yield from filter(None, itertools.starmap(_member, self._members.items()))

    def shift(self, changes: Iterable[Change[Piece]]) -> Shift:
        """What these changes change; the book stays as it is."""
        changed = [c for c in changes if c.before != c.after]
        return Shift(
            (*self._shifted_fronts(changed), *self._shifted_members(changed)),
            tuple(_shifted(changed, self._chains, lambda p: p.chains)),
            tuple(_shifted(changed, self._sets, lambda p: p.sets)),
        )

    def write(self, changes: Iterable[Change[Piece]], shift: Shift) -> None:
        """The kernel has it now. `shift` is what `shift` gave for these changes."""
        for change in changes:
            if change.before is not None:
                self._remove(change.before)
            if change.after is not None:
                self._add(change.after)
        for element in shift.elements:
            if (before := element.before) is not None:
                self.sizes[before.set] -= 1
            if (after := element.after) is not None:
                self.sizes[after.set] += 1

    def _add(self, piece: Piece) -> None:
        self.pieces[piece.key] = piece
        for front in piece.fronts:
            self._claims[front.claim] = tuple(sorted((*self._claims.get(front.claim, ()), piece.key)))
        for chain in piece.chains:
            _hold(self._chains, chain)
        for found in piece.sets:
            _hold(self._sets, found)
        for member in piece.members:
            self._members.setdefault((member.set, member.key), Counter())[member.comment] += 1

    def _remove(self, piece: Piece) -> None:
        del self.pieces[piece.key]
        for front in piece.fronts:
            others = tuple(k for k in self._claims.pop(front.claim) if k != piece.key)
            if others:
                self._claims[front.claim] = others
        for chain in piece.chains:
            _release(self._chains, chain.name)
        for found in piece.sets:
            _release(self._sets, found.name)
        for member in piece.members:
            place = (member.set, member.key)
            left = self._members.pop(place) - Counter((member.comment,))
            if left:
                self._members[place] = left

    def _shifted_fronts(self, changes: Iterable[Change[Piece]]) -> Iterator[Change[Element]]:
        afters: dict[Claim, dict[EntryKey, Front]] = {}  # of the entries that change, by each claim they touch
        changing: set[EntryKey] = set()
        for change in changes:
            for piece in (change.before, change.after):
                if piece is not None:
                    changing.add(piece.key)
                    for front in piece.fronts:
                        claimants = afters.setdefault(front.claim, {})
                        if piece is change.after:
                            claimants[piece.key] = front
        old: dict[Place, Element] = {}
        new: dict[Place, Element] = {}
        for claim, claimants in afters.items():
            keys = self._claims.get(claim, ())
            before = _front(self.pieces[keys[0]], claim) if keys else None
            staying = {k: _front(self.pieces[k], claim) for k in keys if k not in changing}
            after = min((staying | claimants).items(), default=(None, None))[1]
            if before != after:
                old |= {(e.set, e.key): e for e in (elements(before) if before else ())}
                new |= {(e.set, e.key): e for e in (elements(after) if after else ())}
        for place in old | new:
            if old.get(place) != new.get(place):
                yield Change(old.get(place), new.get(place))

    def _shifted_members(self, changes: Iterable[Change[Piece]]) -> Iterator[Change[Element]]:
        afters: dict[Place, Counter[str]] = {}
        for change in changes:
            for piece, step in ((change.before, -1), (change.after, 1)):
                for member in piece.members if piece else ():
                    place = (member.set, member.key)
                    afters.setdefault(place, Counter(self._members.get(place)))[member.comment] += step
        for place, after in afters.items():
            moved = Change(_member(place, self._members.get(place)), _member(place, +after))
            if moved.before != moved.after:
                yield moved


def _member(place: Place, wanted: Counter[str] | None) -> Element | None:
    """None: nobody wants it."""
    return Element(*place, comment=min(wanted)) if wanted else None


def _front(piece: Piece, claim: Claim) -> Front:
    return next(front for front in piece.fronts if front.claim == claim)


def _hold(held: Held[N], one: N) -> None:
    held[one.name] = (one, held[one.name][1] + 1 if one.name in held else 1)


def _release(held: Held[N], name: str) -> None:
    one, count = held.pop(name)
    if count > 1 or stays(name):
        held[name] = (one, count - 1)


def stays(name: str) -> bool:
    """A chain that a number of backends calls for is kept until the next load, though nobody may lead to it for now:
    numbers come again, and a new chain makes the kernel walk all that leads anywhere."""
    return "/" not in name


def _shifted(
    changes: Iterable[Change[Piece]], held: Held[N], wanted: Callable[[Piece], Iterable[N]]
) -> Iterator[Change[N]]:
    counts: Counter[str] = Counter()
    latest: dict[str, N] = {}
    for change in changes:
        for one in wanted(change.before) if change.before else ():
            counts[one.name] -= 1
        for one in wanted(change.after) if change.after else ():
            counts[one.name] += 1
            latest[one.name] = one
    for name, step in counts.items():
        before, count = held.get(name, (None, 0))
        after = latest.get(name, before) if count + step or stays(name) else None
        if before != after:
            yield Change(before, after)
