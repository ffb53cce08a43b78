"""`dataplane.base.Kernel` for sockets: deltas into the maps, and what the maps hold. One a family, over shared maps."""

import asyncio

from clusterip.dataplane.ebpf.attach import Sockets
from clusterip.dataplane.ebpf.delta import Delta
from clusterip.dataplane.ebpf.layout import Contents
from clusterip.services.table import Family


class SocketMaps:
    def __init__(self, sockets: Sockets, family: Family) -> None:
        self._sockets = sockets
        self._family = family

    def __repr__(self) -> str:
        return f"SocketMaps({self._family}, {self._sockets})"

    async def apply(self, delta: Delta) -> None:
        await asyncio.to_thread(self._apply, delta)

    async def observe(self) -> Contents:
        return await asyncio.to_thread(self._sockets.contents, self._family)

    def _apply(self, delta: Delta) -> None:
        for step in delta.steps:
            held = self._sockets.maps[step.map]
            held.put(step.write)
            held.delete(step.delete)
