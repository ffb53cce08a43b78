"""IPVS mode: one family's virtual servers, sets and chains, kept equal to the service table. Owned by the loop."""

import asyncio
import ipaddress
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace

from clusterip.dataplane.beside import beside
from clusterip.dataplane.ipvs import Book, Config, Piece, compile_entry, delta
from clusterip.dataplane.ipvs import apply as edge
from clusterip.dataplane.ipvs.apply import Rules, host_addresses
from clusterip.dataplane.ipvs.chains import chains
from clusterip.dataplane.ipvs.delta import Addresses, Delta, Members, Servers
from clusterip.model.status import Object
from clusterip.proxy.config import IPVS
from clusterip.proxy.pending import Changes, Counted, ServedAddresses
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change

SWEEP_PERIOD = 60.0  # seconds between looks at backends that have left and still have connections


class ServerPlane:
    """`proxier.Plane` of IPVS."""

    def __init__(self, config: Config, rules: Rules, served_addresses: ServedAddresses, sync_period: float) -> None:
        """`sync_period`, seconds: others' damage is seen within it, and addresses that the node has got."""
        self.rules = rules
        self.checked = 0.0
        self._config = config
        self._served_addresses = served_addresses
        self._book = Book()  # what is in the kernel
        self._sync_period = sync_period
        self._next_sweep = 0.0  # monotonic time

    def __repr__(self) -> str:
        return f"ServerPlane({self.rules})"

    @property
    def family(self) -> Family:
        return self._config.family

    @property
    def counts(self) -> Counted:
        """Rules by table: what kube-proxy counts in this mode, too."""
        written = {"nat": 0, "filter": 0}
        for chain in chains(self._book.shape, self._config) if self.checked else ():
            written[chain.table] += len(chain.rules)
        return written

    def status(self) -> Object:
        return {
            "variant": self.rules.programs.variant,
            "virtualServers": len(self._book.claims),
            "leaving": sum(map(len, self._book.retired.values())),
        }

    async def check(self, deep: bool) -> tuple[str, ...] | None:
        """Reads everything, once a sync period: nothing tells of changes here."""
        if not deep and time.monotonic() < self.checked + self._sync_period:
            return None
        config = await self._settled()
        seen = await self.rules.observe(config)
        steps = delta.load(self._book, seen, config).steps
        found = [line for step in steps for line in _told(step)]
        found += await self.rules.missing(self._book.shape, config)
        if config != self._config:
            found.append("the node's addresses are others now")
        self.checked = time.monotonic()
        return tuple(found)

    async def sweep(self) -> None:
        """Delete backends that have left and have no connections any more."""
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + SWEEP_PERIOD
            await self._sweep()

    async def _sweep(self) -> None:
        if self._book.retired:
            idle = await self.rules.idle(self._book.retired)
            await self.rules.apply(delta.sweep(idle))
            self._book.swept(idle)

    async def _settled(self) -> Config:
        """With the addresses that the node has now."""
        served, own = await self._served_addresses(), await host_addresses(self.family, self.rules.netns)
        chosen = own if served is None else tuple(a for a in served if a in own)
        serving = tuple(a for a in chosen if not ipaddress.ip_address(a).is_loopback)
        return replace(self._config, host_addresses=frozenset(own), node_addresses=serving)

    async def load(self, entries: Mapping[EntryKey, Entry]) -> Counted:
        config = await self._settled()
        seen = await self.rules.observe(config)

        def build() -> tuple[Book, Delta]:
            book = Book.of(compile_entry(entry, config) for entry in entries.values())
            return book, delta.load(book, seen, config)

        book, everything = await asyncio.to_thread(build)
        await self.rules.apply(everything)
        book.retire(everything.retired)
        self._config, self._book, self.checked = config, book, time.monotonic()
        await self._sweep()
        return self.counts

    async def change(self, changes: Changes) -> Counted:
        def build() -> tuple[list[Change[Piece]], Delta]:
            pieces = [
                Change(self._book.pieces.get(key), compile_entry(c.after, self._config) if c.after else None)
                for key, c in changes.items()
            ]
            return pieces, delta.delta(self._book.shift(pieces), self._config)

        pieces, change = await beside(build, changes)
        await self.rules.apply(change)
        self._book.write(pieces)
        self._book.retire(change.retired)
        if any(change.retired.values()):
            await self._sweep()
        return {"nat": 0, "filter": 0}


async def able(config: IPVS) -> None:
    """Raises Unavailable, with the mode to use instead."""
    await edge.check(config.scheduler or Config().scheduler)


async def ready(config: IPVS) -> None:
    """What the mode needs before the first virtual server. Raises Unavailable, with the mode to use instead."""
    await able(config)
    major, minor = os.uname().release.split(".")[:2]
    wanted = edge.settings(strict_arp=config.strict_arp, kernel=(int(major), int(re.sub(r"\D.*", "", minor))))
    await asyncio.to_thread(edge.prepare, wanted)
    await asyncio.to_thread(
        edge.set_timeouts, int(config.tcp_timeout), int(config.tcp_fin_timeout), int(config.udp_timeout)
    )


def _told(step: delta.Step) -> list[str]:
    """What a load would do, for people; the rules are told apart."""
    match step:
        case Members(text):
            return [f"sets: {line}" for line in text.splitlines()]
        case Servers(commands):
            return [f"{c.verb.value}: {c.at.protocol} {c.at.address} port {c.at.port}" for c in commands]
        case Addresses(bind, unbind):
            return [f"address not bound: {a}" for a in bind] + [f"address bound: {a}" for a in unbind]
        case _:
            return []
