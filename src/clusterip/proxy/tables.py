"""nftables mode: one family's table, kept equal to the service table. Owned by the loop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from clusterip.dataplane.beside import beside
from clusterip.dataplane.nftables import Book, Config, Delta, Piece, compile_entry, delta
from clusterip.dataplane.nftables.apply import Rules
from clusterip.dataplane.nftables.book import Shift
from clusterip.dataplane.nftables.compare import compare, compare_shape
from clusterip.model.status import Object
from clusterip.proxy.pending import Changes, Counted, ServedAddresses
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change


class TablePlane:
    """`proxier.Plane` of nftables."""

    def __init__(
        self,
        config: Config,
        rules: Rules,
        served_addresses: ServedAddresses,
        service_cidrs: Callable[[], tuple[str, ...]],
        sync_period: float,
    ) -> None:
        """`service_cidrs` is asked at each load. `sync_period`, seconds: others' damage is seen within it."""
        self.rules = rules
        self.checked = 0.0
        self._config = config
        self._served_addresses = served_addresses
        self._service_cidrs = service_cidrs
        self._book = Book()  # what is in the kernel
        self._sizes: Mapping[str, int] = {}  # of the sets in the kernel
        self._epoch = -1  # of the generation, when the table was last known to be ours
        self._sync_period = sync_period
        self._rest = 0.0  # monotonic time until which the table is not read again, however much others write

    def __repr__(self) -> str:
        return f"TablePlane({self.rules})"

    @property
    def family(self) -> Family:
        return self._config.family

    @property
    def counts(self) -> Counted:
        return {"elements": self._book.sizes.total()}

    def status(self) -> Object:
        return {"variant": "nftables"}

    async def check(self, deep: bool) -> tuple[str, ...] | None:
        """Asks for the generation alone while nobody writes; then for the table's shape, and how many elements it has.
        Every element is read as well, but where others write all the time that takes a hundredth of our time at most (a
        tenth where the kernel does not count elements)."""
        if not deep and await self.rules.look() == self._epoch:
            return None
        started, epoch = time.monotonic(), await self.rules.look()
        shape = await self.rules.glance()
        found = await asyncio.to_thread(compare_shape, shape, self._book, self._config)
        resting = started < self._rest
        if not found and (deep or not resting):
            seen = await self.rules.read()
            found = await asyncio.to_thread(compare, seen, self._book, self._config)
            self.checked = time.monotonic()
            took = self.checked - started
            self._rest = self.checked + (100 * took if shape.counted else min(self._sync_period, 10 * took))
            resting = False
        if shape.counted or not resting:
            self._epoch = epoch
        return found

    async def sweep(self) -> None:
        """Nothing is left standing."""

    async def load(self, entries: Mapping[EntryKey, Entry]) -> Counted:
        served, cidrs = await self._served_addresses(), self._service_cidrs()
        config = replace(self._config, node_port_addresses=served, service_cidrs=cidrs)
        epoch = await self.rules.look()
        installed = await self.rules.observe()

        def build() -> tuple[Book, Delta]:
            book = Book.of(compile_entry(entry, config) for entry in entries.values())
            return book, delta.load(book, installed, config)

        book, everything = await asyncio.to_thread(build)
        await self.rules.load(everything)
        self._config, self._book, self._sizes = config, book, everything.sizes
        self._epoch, self.checked = epoch, time.monotonic()
        return {"elements": everything.elements}

    async def change(self, changes: Changes) -> Counted | None:
        def build() -> tuple[list[Change[Piece]], Shift, Delta | None]:
            pieces = [
                Change(self._book.pieces.get(key), compile_entry(c.after, self._config) if c.after else None)
                for key, c in changes.items()
            ]
            shift = self._book.shift(pieces)
            return pieces, shift, None if delta.overflows(shift, self._book, self._sizes) else delta.delta(shift)

        pieces, shift, change = await beside(build, changes)
        if change is None:
            return None
        await self.rules.apply(change)
        self._book.write(pieces, shift)
        return {"elements": change.elements}
