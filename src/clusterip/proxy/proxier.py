"""One family's rules, kept equal to the service table: what is pending, what is programmed, what to do next.

Owned by the loop. A sync that the kernel refuses loses nothing: its changes are pending again beneath what came since,
and the next sync starts from what is in the kernel.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from clusterip.dataplane.iptables import LARGE_CLUSTER_ENDPOINTS, Config, Counts, Delta, Piece, compile_entry, delta
from clusterip.dataplane.iptables.apply import Rules
from clusterip.dataplane.iptables.compare import compare, without
from clusterip.dataplane.iptables.names import CANARY
from clusterip.kernel import iptables as kernel
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change, ChangeTracker

T = TypeVar("T")
ServedAddresses: TypeAlias = Callable[[], Awaitable[tuple[str, ...] | None]]  # that serve node ports now; None: all

CANARY_PATIENCE = 5.0  # seconds for the tables to go one after the other before we write them anew
_CANARY_POLL = 0.1


@dataclass(frozen=True, slots=True)
class Synced:
    """One sync that succeeded."""

    full: bool
    seconds: float
    written: Counts  # rules
    changes: Mapping[EntryKey, Change[Entry]]

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


class Proxier:
    def __init__(self, config: Config, rules: Rules, served_addresses: ServedAddresses, sync_period: float) -> None:
        """`sync_period`, seconds: others' damage is seen within it, and a large cluster is swept once in it."""
        self.rules = rules
        self.entries: dict[EntryKey, Entry] = {}  # in the kernel
        self.total = Counts()  # rules in the kernel
        self.sums = Sums()
        self.drift: tuple[str, ...] = ()  # what the last check found others had done
        self.checked = 0.0  # monotonic time of the last look at the rules themselves
        self._config = config
        self._served_addresses = served_addresses
        self._pieces: dict[EntryKey, Piece] = {}
        self._tracker: ChangeTracker[EntryKey, Entry] = ChangeTracker()
        self._stale: frozenset[str] = frozenset()
        self._must_load = True
        self._epoch = -1  # of the watch, when the rules were last known to be ours
        self._sync_period = sync_period
        self._rest = 0.0  # monotonic time until which the rules are not read again, however much others write
        self._next_sweep = 0.0  # monotonic time of the next sweep

    def __repr__(self) -> str:
        return f"Proxier({self.family} entries={len(self.entries)} pending={len(self._tracker)} {self.rules})"

    @property
    def family(self) -> Family:
        return self._config.family

    @property
    def pending(self) -> bool:
        return self._must_load or len(self._tracker) > 0

    @property
    def large(self) -> bool:
        return self._config.large_cluster

    def note(self, changes: Mapping[EntryKey, Change[Entry]]) -> bool:
        """True if any is of this family."""
        ours = {key: change for key, change in changes.items() if key.family == self.family}
        for key, change in ours.items():
            self._tracker.note(key, change)
        return bool(ours)

    @property
    def full_next(self) -> bool:
        """The next sync writes everything."""
        return self._must_load

    def load_next(self) -> None:
        """The next sync writes everything."""
        self._must_load = True

    async def sync(self) -> Synced:
        """Bring the kernel to what was noted. Raises ClusterIPError; nothing is lost then."""
        taken, full, started = self._tracker.take(), self._must_load, time.monotonic()
        try:
            written = await (self._load(taken) if full else self._change(taken))
        except BaseException:
            self._tracker.give_back(taken)
            self._must_load = True
            raise
        self._must_load = False
        return Synced(full, time.monotonic() - started, written, taken)

    async def check(self, deep: bool = False) -> tuple[str, ...]:
        """What others did to our rules since the last check; if anything, the next sync writes everything.

        Costs next to nothing while nobody writes. Where others write all the time, reading the rules after them takes
        a tenth of our time at most. `deep` reads them in any case.
        """
        started = time.monotonic()
        if self._epoch < 0 or (not deep and (started < self._rest or await self.rules.watch.look() == self._epoch)):
            return ()
        if not await self._has_canary("mangle"):
            await self._wait_for_flush()
        seen = await self.rules.observe()
        pieces = tuple(self._pieces.values())
        found = await asyncio.to_thread(compare, seen.text, pieces, self._config, self._stale)
        self.drift = found.differences
        self._epoch, self.checked = seen.epoch, time.monotonic()
        self._rest = self.checked + min(self._sync_period, 10 * (self.checked - started))
        self._must_load = self._must_load or bool(self.drift)
        return self.drift

    async def sweep(self) -> None:
        """Remove chains that nobody refers to any more; in a large cluster that is not done with each change."""
        if self._stale and not self._must_load and time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + self._sync_period
            await self.rules.apply(delta.sweep(self._stale))
            self._stale = frozenset()

    async def _load(self, taken: Mapping[EntryKey, Change[Entry]]) -> Counts:
        entries = _after(self.entries, taken)
        sums = functools.reduce(Sums.plus, entries.values(), Sums())
        config = replace(
            self._config,
            large_cluster=sums.endpoints > LARGE_CLUSTER_ENDPOINTS,
            node_port_addresses=await self._served_addresses(),
        )
        seen = await self.rules.observe()
        installed = delta.installed(seen.text, config)

        def build() -> tuple[dict[EntryKey, Piece], Delta]:
            pieces = {key: compile_entry(entry, config) for key, entry in entries.items()}
            everything = delta.load(pieces.values(), installed, config, self.rules.variant)
            if not installed.chains:
                return pieces, everything
            return pieces, without(everything, compare(seen.text, pieces.values(), config))

        pieces, change = await asyncio.to_thread(build)
        await self.rules.apply(change)
        self._config, self.entries, self._pieces = config, entries, pieces
        self.total, self.sums, self._stale = change.change, sums, frozenset()
        self._epoch, self.checked = seen.epoch, time.monotonic()
        return change.written

    async def _change(self, taken: Mapping[EntryKey, Change[Entry]]) -> Counts:
        pieces = {
            key: Change(self._pieces.get(key), compile_entry(c.after, self._config) if c.after else None)
            for key, c in taken.items()
        }
        change = delta.delta(pieces.values(), self._config, self._stale, self.rules.variant)
        await self.rules.apply(change)
        for key, piece in pieces.items():
            after = taken[key].after
            self.sums = self.sums.plus(self.entries.get(key), -1).plus(after)
            _put(self._pieces, key, piece.after)
            _put(self.entries, key, after)
        self.total, self._stale = self.total + change.change, change.stale
        # A cluster that has grown large, or small, is written in the other way from now on; what stands may stay.
        if (large := self.sums.endpoints > LARGE_CLUSTER_ENDPOINTS) != self.large:
            self._config = replace(self._config, large_cluster=large)
        return change.written

    async def _has_canary(self, table: str) -> bool:
        return await kernel.has_chain(self.rules.programs, table, CANARY)

    async def _wait_for_flush(self) -> None:
        """Who flushes one table usually flushes the others, too: written in between, ours would go again."""
        ends = time.monotonic() + CANARY_PATIENCE
        while time.monotonic() < ends:
            if not (await self._has_canary("nat") or await self._has_canary("filter")):
                return
            await asyncio.sleep(_CANARY_POLL)


def _after(entries: Mapping[EntryKey, Entry], taken: Mapping[EntryKey, Change[Entry]]) -> dict[EntryKey, Entry]:
    result = dict(entries)
    for key, change in taken.items():
        _put(result, key, change.after)
    return result


def _put(where: dict[EntryKey, T], key: EntryKey, value: T | None) -> None:
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
