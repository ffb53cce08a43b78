"""One family's rules, kept equal to the service table, whatever the dataplane. Owned by the loop.

Proxier(ChainPlane(...))     iptables mode
Proxier(TablePlane(...))     nftables mode
Proxier(ServerPlane(...))    IPVS mode
"""

from collections.abc import Mapping
from typing import Protocol

from clusterip.model.status import Object
from clusterip.proxy.pending import Changes, Counted, Pending, Sums, Synced
from clusterip.services.table import Entry, EntryKey, Family


class Plane(Protocol):
    """What a dataplane has of its own: how it writes, and how it looks at what it wrote. The entries that it is given
    are in the kernel when a write returns, and not before; one that raises ClusterIPError is followed by a `load`."""

    checked: float  # monotonic time of the last look at the rules themselves; 0: nothing has been written

    @property
    def family(self) -> Family: ...
    @property
    def counts(self) -> Counted:
        """What is in the kernel."""
        ...

    def status(self) -> Object:
        """What `clusterip status` shows of it, besides `entries` and `rules`."""
        ...

    async def load(self, entries: Mapping[EntryKey, Entry]) -> Counted:
        """From whatever is there to exactly these; what was written."""
        ...

    async def change(self, changes: Changes) -> Counted | None:
        """Only what differs. None: it does not fit into what stands, and nothing has been written: load all."""
        ...

    async def check(self, deep: bool) -> tuple[str, ...] | None:
        """What others did to our rules since the last look; None: there was no call for one. `deep` calls for one."""
        ...

    async def sweep(self) -> None:
        """Remove what nobody refers to any more, where that is not done with each change."""
        ...


class Proxier:
    """`pending.FamilyProxier` over one dataplane."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.drift: tuple[str, ...] = ()
        self._pending = Pending(plane.family)

    def __repr__(self) -> str:
        return f"Proxier({self.family} entries={len(self.entries)} pending={len(self._pending)} {self.plane})"

    @property
    def family(self) -> Family:
        return self.plane.family

    @property
    def checked(self) -> float:
        return self.plane.checked

    @property
    def entries(self) -> Mapping[EntryKey, Entry]:
        return self._pending.entries

    @property
    def sums(self) -> Sums:
        return self._pending.sums

    @property
    def counts(self) -> Counted:
        return self.plane.counts

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    @property
    def full_next(self) -> bool:
        return self._pending.must_load

    def status(self) -> Object:
        own = self.plane.status()
        return {"variant": own.pop("variant"), "entries": len(self.entries), "rules": dict(self.counts), **own}

    def note(self, changes: Changes) -> bool:
        return self._pending.note(changes)

    def load_next(self) -> None:
        self._pending.must_load = True

    async def sync(self) -> Synced:
        return await self._pending.sync(self._load, self.plane.change)

    async def check(self, deep: bool = False) -> tuple[str, ...]:
        found = await self.plane.check(deep) if self.plane.checked else None
        if found is None:
            return ()
        self.drift = found
        if found:
            self.load_next()
        return found

    async def sweep(self) -> None:
        if not self.full_next:
            await self.plane.sweep()

    async def _load(self, entries: dict[EntryKey, Entry]) -> Counted:
        written = await self.plane.load(entries)
        self.drift = ()
        return written
