"""One family's Services at the sockets, kept equal to the service table by its owner, above a dataplane for packets.

    layer = SocketLayer(sockets, "IPv4", localhost_node_ports=True)
    await layer.load(entries, addresses)      # at start, after a failure, when others did damage
    await layer.change(changes)               # only what changed
    await layer.end_stale()                   # after changes of UDP Services

What fails leaves the layer as it was told last; a load then heals it, whatever the kernel has.
"""

import asyncio
from collections.abc import Iterable, Mapping

from clusterip.dataplane.beside import beside
from clusterip.dataplane.ebpf.apply import SocketMaps
from clusterip.dataplane.ebpf.attach import Sockets
from clusterip.dataplane.ebpf.compile import Piece, compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import Delta, applied, apply, delta, differences, load
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.dataplane.ebpf.stale import end_stale, serving
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change


class SocketLayer:
    def __init__(self, sockets: Sockets, family: Family, *, localhost_node_ports: bool) -> None:
        self._sockets = sockets
        self._maps = SocketMaps(sockets, family)
        self._config = Config(family, localhost_node_ports=localhost_node_ports)
        self._entries: dict[EntryKey, Entry] = {}
        self._pieces: dict[EntryKey, Piece] = {}
        self._contents = applied(EMPTY, ())  # what the maps should hold of the family

    def __repr__(self) -> str:
        return f"SocketLayer({self._config.family} entries={len(self._entries)} {self._sockets})"

    @property
    def size(self) -> int:
        """Frontends that sockets are served at."""
        return sum(len(piece.services) for piece in self._pieces.values())

    async def load(self, entries: Iterable[Entry], addresses: Iterable[str]) -> int:
        """All of them, with node ports on these addresses of the node; entries written. Attaches the programs if they
        are not. Raises ClusterIPError."""
        config = Config(self._config.family, tuple(addresses), self._config.localhost_node_ports)
        seen = await self._maps.observe()
        wanted = {entry.key: entry for entry in entries}

        def build() -> tuple[dict[EntryKey, Piece], Delta]:
            pieces = {key: compile_entry(entry, config) for key, entry in wanted.items()}
            return pieces, load(pieces.values(), seen)

        pieces, change = await asyncio.to_thread(build)
        await self._maps.apply(change)
        self._config, self._entries, self._pieces = config, wanted, pieces
        self._contents = await asyncio.to_thread(applied, seen, change.steps)
        # Not before the maps are full: a Service that is not there yet would be the dataplane beneath's.
        await asyncio.to_thread(self._sockets.attach)
        return change.written

    async def change(self, changes: Mapping[EntryKey, Change[Entry]]) -> int:
        """Entries written. Raises ClusterIPError."""

        def build() -> tuple[dict[EntryKey, Change[Piece]], Delta]:
            pieces = {key: Change(self._pieces.get(key), self._compile(c.after)) for key, c in changes.items()}
            return pieces, delta(pieces.values())

        pieces, change = await beside(build, changes)
        await self._maps.apply(change)
        apply(self._contents, change.steps)
        for key, c in changes.items():
            after = pieces[key].after
            if c.after is None or after is None:
                self._entries.pop(key, None)
                self._pieces.pop(key, None)
            else:
                self._entries[key], self._pieces[key] = c.after, after
        return change.written

    async def end_stale(self) -> int:
        """End connected datagram sockets whose backend serves no more; how many there were. Raises ClusterIPError."""
        table = serving(self._entries.values())
        return await asyncio.to_thread(end_stale, self._sockets, table, self._config.family)

    async def check(self, *, deep: bool) -> tuple[str, ...]:
        """What others did to the programs, and with `deep` to the maps, in sentences. Raises ClusterIPError."""
        found = list(await asyncio.to_thread(self._sockets.damage))
        if deep:
            seen = await self._maps.observe()
            counts = await asyncio.to_thread(differences, self._contents, seen)
            found += [f"map {name}: {count} entries are not as they were written" for name, count in counts.items()]
        return tuple(found)

    def _compile(self, entry: Entry | None) -> Piece | None:
        return compile_entry(entry, self._config) if entry is not None else None
