"""iptables mode: one family's rules, kept equal to the service table. Owned by the loop."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from clusterip.dataplane.beside import beside
from clusterip.dataplane.iptables import LARGE_CLUSTER_ENDPOINTS, Config, Counts, Delta, Piece, compile_entry, delta
from clusterip.dataplane.iptables.apply import Rules
from clusterip.dataplane.iptables.compare import compare, without
from clusterip.dataplane.iptables.names import CANARY
from clusterip.kernel import iptables as kernel
from clusterip.model.status import Object
from clusterip.proxy.pending import Changes, Counted, ServedAddresses, Sums, put
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change

CANARY_PATIENCE = 5.0  # seconds for the tables to go one after the other before we write them anew
_CANARY_POLL = 0.1


class ChainPlane:
    """`proxier.Plane` of iptables."""

    def __init__(self, config: Config, rules: Rules, served_addresses: ServedAddresses, sync_period: float) -> None:
        """`sync_period`, seconds: others' damage is seen within it, and a large cluster is swept once in it."""
        self.rules = rules
        self.total = Counts()  # rules in the kernel
        self.checked = 0.0
        self._config = config
        self._served_addresses = served_addresses
        self._pieces: dict[EntryKey, Piece] = {}
        self._endpoints = 0  # of all pieces
        self._stale: frozenset[str] = frozenset()
        self._epoch = -1  # of the watch, when the rules were last known to be ours
        self._sync_period = sync_period
        self._rest = 0.0  # monotonic time until which the rules are not read again, however much others write
        self._next_sweep = 0.0  # monotonic time of the next sweep

    def __repr__(self) -> str:
        return f"ChainPlane({self.rules})"

    @property
    def family(self) -> Family:
        return self._config.family

    @property
    def counts(self) -> Counted:
        return {"nat": self.total.nat, "filter": self.total.filter}

    @property
    def large(self) -> bool:
        return self._config.large_cluster

    def status(self) -> Object:
        return {"variant": self.rules.programs.variant, "largeCluster": self.large}

    async def check(self, deep: bool) -> tuple[str, ...] | None:
        """Costs next to nothing while nobody writes. Where others write all the time, reading the rules after them
        takes a tenth of our time at most."""
        started = time.monotonic()
        if not deep and (started < self._rest or await self.rules.watch.look() == self._epoch):
            return None
        if not await self._has_canary("mangle"):
            await self._wait_for_flush()
        seen = await self.rules.observe()
        pieces = tuple(self._pieces.values())
        found = await asyncio.to_thread(compare, seen.text, pieces, self._config, self._stale)
        self._epoch, self.checked = seen.epoch, time.monotonic()
        self._rest = self.checked + min(self._sync_period, 10 * (self.checked - started))
        return found.differences

    async def sweep(self) -> None:
        """Remove chains that nobody refers to any more; in a large cluster that is not done with each change."""
        if self._stale and time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + self._sync_period
            await self.rules.apply(delta.sweep(self._stale))
            self._stale = frozenset()

    async def load(self, entries: Mapping[EntryKey, Entry]) -> Counted:
        config = replace(
            self._config,
            large_cluster=Sums.over(entries).endpoints > LARGE_CLUSTER_ENDPOINTS,
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
        self._config, self._pieces = config, pieces
        self._endpoints = sum(piece.endpoints for piece in pieces.values())
        self.total, self._stale = change.change, frozenset()
        self._epoch, self.checked = seen.epoch, time.monotonic()
        self._next_sweep = self.checked + self._sync_period
        return _counted(change.written)

    async def change(self, changes: Changes) -> Counted:
        def build() -> tuple[dict[EntryKey, Change[Piece]], Delta]:
            pieces = {
                key: Change(self._pieces.get(key), compile_entry(c.after, self._config) if c.after else None)
                for key, c in changes.items()
            }
            return pieces, delta.delta(pieces.values(), self._config, self._stale, self.rules.variant)

        pieces, change = await beside(build, changes)
        await self.rules.apply(change)
        for key, piece in pieces.items():
            self._endpoints += sum(sign * p.endpoints for sign, p in ((-1, piece.before), (1, piece.after)) if p)
            put(self._pieces, key, piece.after)
        self.total, self._stale = self.total + change.change, change.stale
        # A cluster that has grown large, or small, is written in the other way from now on; what stands may stay.
        if (large := self._endpoints > LARGE_CLUSTER_ENDPOINTS) != self.large:
            self._config = replace(self._config, large_cluster=large)
        return _counted(change.written)

    async def _has_canary(self, table: str) -> bool:
        return await kernel.has_chain(self.rules.programs, table, CANARY)

    async def _wait_for_flush(self) -> None:
        """Who flushes one table usually flushes the others, too: written in between, ours would go again."""
        ends = time.monotonic() + CANARY_PATIENCE
        while time.monotonic() < ends:
            if not (await self._has_canary("nat") or await self._has_canary("filter")):
                return
            await asyncio.sleep(_CANARY_POLL)


def _counted(counts: Counts) -> Counted:
    return {"nat": counts.nat, "filter": counts.filter}
