"""What one family's rules are to become: what is pending, what is in the kernel, what to do next.

A sync that the kernel refuses loses nothing: its changes are pending again beneath what came since, and the next sync
starts from what is in the kernel.
"""

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from clusterip.model.status import Object
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change, ChangeTracker

T = TypeVar("T")
Changes: TypeAlias = Mapping[EntryKey, Change[Entry]]
Counted: TypeAlias = Mapping[str, int]  # rules, or elements, by where they are
ServedAddresses: TypeAlias = Callable[[], Awaitable[tuple[str, ...] | None]]  # that serve node ports now; None: all


@dataclass(frozen=True, slots=True)
class Synced:
    """One sync that succeeded."""

    full: bool
    seconds: float
    written: Counted
    changes: Changes

    @property
    def udp(self) -> bool:
        """Flows of UDP Services may have lost their backend."""
        return any(key.protocol == "UDP" for key in self.changes)

    @property
    def health_checks(self) -> bool:
        """Servers on health check node ports may have to come, go, or say something else."""
        sides = (entry for change in self.changes.values() for entry in (change.before, change.after))
        return any(entry is not None and entry.health_check_node_port for entry in sides)


class Sums(NamedTuple):
    """Over all entries in the kernel."""

    endpoints: int = 0
    internal_gaps: int = 0  # Service ports with backends elsewhere, a Local internal policy and none here
    external_gaps: int = 0  # the same by external policy

    def plus(self, entry: Entry | None, sign: int = 1) -> "Sums":
        more = _sums(entry)
        return Sums(*(have + sign * add for have, add in zip(self, more, strict=True)))

    @classmethod
    def over(cls, entries: Mapping[EntryKey, Entry]) -> "Sums":
        return functools.reduce(cls.plus, entries.values(), cls())


class FamilyProxier(Protocol):
    """One family's rules, kept equal to the service table, by whatever dataplane. Owned by the loop."""

    @property
    def drift(self) -> tuple[str, ...]:
        """What the last check found others had done."""
        ...

    @property
    def checked(self) -> float:
        """Monotonic time of the last look at the rules themselves."""
        ...

    @property
    def family(self) -> Family: ...
    @property
    def entries(self) -> Mapping[EntryKey, Entry]:
        """In the kernel."""
        ...

    @property
    def sums(self) -> Sums: ...
    @property
    def counts(self) -> Counted:
        """What is in the kernel."""
        ...

    @property
    def pending(self) -> bool: ...
    @property
    def full_next(self) -> bool:
        """The next sync writes everything."""
        ...

    def status(self) -> Object:
        """What `clusterip status` shows of this family."""
        ...

    def note(self, changes: Changes, /) -> bool:
        """True if any is of this family."""
        ...

    def load_next(self) -> None:
        """The next sync writes everything."""
        ...

    async def sync(self) -> Synced:
        """Bring the kernel to what was noted. Raises ClusterIPError; nothing is lost then."""
        ...

    async def check(self, deep: bool = False) -> tuple[str, ...]:
        """What others did to our rules since the last check; if anything, the next sync writes everything."""
        ...

    async def sweep(self) -> None:
        """Remove what nobody refers to any more, where that is not done with each change."""
        ...


class Pending:
    """The part of it that knows no dataplane."""

    def __init__(self, family: Family) -> None:
        self.family: Family = family
        self.entries: dict[EntryKey, Entry] = {}  # in the kernel
        self.sums = Sums()
        self.must_load = True  # the next sync writes everything
        self._tracker: ChangeTracker[EntryKey, Entry] = ChangeTracker()

    def __len__(self) -> int:
        return len(self._tracker)

    def __bool__(self) -> bool:
        return self.must_load or len(self._tracker) > 0

    def note(self, changes: Changes) -> bool:
        """True if any is of this family."""
        ours = {key: change for key, change in changes.items() if key.family == self.family}
        for key, change in ours.items():
            self._tracker.note(key, change)
        return bool(ours)

    async def sync(
        self,
        load: Callable[[dict[EntryKey, Entry]], Awaitable[Counted]],
        change: Callable[[Changes], Awaitable[Counted | None]],
    ) -> Synced:
        """By `change`; by `load` of all entries if that is called for, or `change` says so. Each says what it wrote."""
        taken, started = self._tracker.take(), time.monotonic()
        try:
            written = None if self.must_load else await change(taken)
            if full := written is None:
                entries = after(self.entries, taken)
                written = await load(entries)
                self.entries, self.sums = entries, Sums.over(entries)
            else:
                self._change(taken)
        except BaseException:
            self._tracker.give_back(taken)
            self.must_load = True
            raise
        self.must_load = False
        return Synced(full, time.monotonic() - started, written, taken)

    def _change(self, taken: Changes) -> None:
        for key, change in taken.items():
            self.sums = self.sums.plus(self.entries.get(key), -1).plus(change.after)
            put(self.entries, key, change.after)


def after(entries: Mapping[EntryKey, Entry], taken: Changes) -> dict[EntryKey, Entry]:
    result = dict(entries)
    for key, change in taken.items():
        put(result, key, change.after)
    return result


def put(where: dict[EntryKey, T], key: EntryKey, value: T | None) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value


def _sums(entry: Entry | None) -> Sums:
    if entry is None:
        return Sums()
    missing = entry.has_backends and not entry.local
    external = entry.external_local and entry.external
    return Sums(entry.known, int(missing and entry.internal_local), int(missing and external))
