"""From what the maps hold to what they should hold, in an order of which every prefix is safe. Pure.

New sets come in first, and nobody refers to them yet; then each Service moves over by one write, from its old backends
to its new ones; then Services go; then the sets that nobody refers to any more. A program that has read a Service just
before it moved, and its set just after it went, looks again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from clusterip.dataplane.ebpf.compile import Piece
from clusterip.dataplane.ebpf.layout import MAPS, Contents, Entries, MapName, read_member, read_service, read_slot
from clusterip.services.tracker import Change

MutableContents: TypeAlias = dict[MapName, dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Step:
    """Entries of one map: written, or deleted."""

    map: MapName
    write: Entries = field(default_factory=lambda: MappingProxyType({}))
    delete: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """To be done in order. Empty: there is nothing to do."""

    steps: tuple[Step, ...] = ()

    @property
    def written(self) -> int:
        """Entries written."""
        return sum(len(step.write) for step in self.steps)


def load(pieces: Collection[Piece], seen: Contents) -> Delta:
    """From `seen`, whatever it is, to exactly `pieces`. Of two that claim one frontend the first by key has it."""
    return _between(seen, _union(sorted(pieces, key=lambda p: p.key, reverse=True)))


def delta(changes: Iterable[Change[Piece]]) -> Delta:
    """Only what changed.

    Where an unchanged piece claims a frontend that a changed one gives up, the frontend goes, and the dataplane beneath
    answers for it until the next load.
    """
    pairs = [(c.before, c.after) for c in changes if c.before != c.after]
    before = _union([p for p, _ in pairs if p is not None])
    after = _union([p for _, p in pairs if p is not None])
    return _between(before, after)


def _union(pieces: Iterable[Piece]) -> Contents:
    union: dict[MapName, dict[bytes, bytes]] = {name: {} for name in MAPS}
    for piece in pieces:
        for name, entries in piece.contents.items():
            union[name].update(entries)
    return union


def _between(before: Contents, after: Contents) -> Delta:
    def write(name: MapName) -> Step:
        had = before[name]
        return Step(name, write={k: v for k, v in after[name].items() if had.get(k) != v})

    def delete(name: MapName) -> Step:
        return Step(name, delete=tuple(k for k in rest[name] if k not in after[name]))

    spare = _orphans(before, after)
    rest: Contents = {n: {k: v for k, v in entries.items() if k not in spare[n]} for n, entries in before.items()}
    steps = (
        *(Step(name, delete=spare[name]) for name in ("members", "slots")),
        *(write("slots"), write("members"), write("services")),
        *(delete("services"), delete("members"), delete("slots")),
    )
    return Delta(tuple(step for step in steps if step.write or step.delete))


def _orphans(before: Contents, after: Contents) -> Mapping[MapName, tuple[bytes, ...]]:
    """Of sets that no Service leads to, as a failure may have left them: they go first, to make room."""
    used = {read_service(value).set for value in before["services"].values()}
    return {
        "services": (),
        "slots": tuple(k for k in before["slots"] if read_slot(k)[0] not in used and k not in after["slots"]),
        "members": tuple(k for k in before["members"] if read_member(k)[0] not in used and k not in after["members"]),
    }


def applied(contents: Contents, steps: Iterable[Step]) -> MutableContents:
    """What the maps hold after these steps."""
    result: MutableContents = {name: dict(entries) for name, entries in contents.items()}
    apply(result, steps)
    return result


def apply(contents: MutableContents, steps: Iterable[Step]) -> None:
    """To `contents` itself."""
    for step in steps:
        contents[step.map].update(step.write)
        for key in step.delete:
            contents[step.map].pop(key, None)


def differences(expected: Contents, seen: Contents) -> Mapping[MapName, int]:
    """How many entries of each map are missing, strange or other than they should be; only maps that have any."""
    if expected == seen:
        return {}
    counts = {
        name: sum(seen[name].get(key) != value for key, value in expected[name].items())
        + sum(key not in expected[name] for key in seen[name])
        for name in MAPS
    }
    return {name: count for name, count in counts.items() if count}
