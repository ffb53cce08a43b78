"""eBPF mode: sockets served at the cgroup hooks, above a proxier for packets that no socket of ours sends."""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clusterip.dataplane.ebpf import attach
from clusterip.dataplane.ebpf.attach import Place, Sockets
from clusterip.dataplane.ebpf.check import check
from clusterip.dataplane.ebpf.config import LOOPBACK
from clusterip.dataplane.ebpf.layer import SocketLayer
from clusterip.dataplane.ebpf.program import shipped
from clusterip.errors import ClusterIPError
from clusterip.kernel import cgroup, netns
from clusterip.kernel import iptables as kernel
from clusterip.model.status import Object
from clusterip.proxy import rules
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.pending import Changes, Counted, FamilyProxier, ServedAddresses, Sums, Synced
from clusterip.services.table import Entry, EntryKey, Family
from clusterip.services.tracker import Change

log = logging.getLogger(__name__)


class SocketProxier:
    """`pending.FamilyProxier` of two layers. The packets' comes first: whatever the sockets leave is answered by it."""

    def __init__(
        self, beneath: FamilyProxier, layer: SocketLayer, served_addresses: ServedAddresses, sync_period: float
    ) -> None:
        """`sync_period`, seconds: others' damage is seen within it."""
        self.drift: tuple[str, ...] = ()
        self.checked = 0.0  # as the layer beneath says
        self._beneath = beneath
        self._layer = layer
        self._served_addresses = served_addresses
        self._must_load = True  # the sockets' layer is not what the one beneath is
        self._sync_period = sync_period
        self._rest = 0.0  # monotonic time until which the maps are not read again
        self._owed: dict[EntryKey, Change[Entry]] = {}  # in the packets' layer, and not yet told to anybody

    def __repr__(self) -> str:
        return f"SocketProxier({self._layer} above {self._beneath})"

    @property
    def family(self) -> Family:
        return self._beneath.family

    @property
    def entries(self) -> Mapping[EntryKey, Entry]:
        return self._beneath.entries

    @property
    def sums(self) -> Sums:
        return self._beneath.sums

    @property
    def counts(self) -> Counted:
        return {**self._beneath.counts, "frontends": self._layer.size}

    @property
    def pending(self) -> bool:
        return self._must_load or self._beneath.pending

    @property
    def full_next(self) -> bool:
        return self._must_load or self._beneath.full_next

    def status(self) -> Object:
        return {**self._beneath.status(), "variant": "ebpf", "rules": dict(self.counts)}

    def note(self, changes: Changes) -> bool:
        return self._beneath.note(changes)

    def load_next(self) -> None:
        self._must_load = True
        self._beneath.load_next()

    async def sync(self) -> Synced:
        done = await self._beneath.sync()
        self.checked = self._beneath.checked
        for key, change in done.changes.items():
            before = self._owed[key].before if key in self._owed else change.before
            self._owed[key] = Change(before, change.after)
        loop, full = asyncio.get_running_loop(), done.full or self._must_load
        started = loop.time()
        self._must_load = True  # until it is done
        if full:
            written = await self._layer.load(self.entries.values(), await self._node_addresses())
            self.drift = ()
        else:
            written = await self._layer.change(done.changes)
        if full or done.udp:
            await self._end_stale()
        self._must_load = False
        told, self._owed = self._owed, {}
        return Synced(
            full=full,
            seconds=done.seconds + loop.time() - started,
            written={**done.written, "entries": written},
            changes=told,
        )

    async def check(self, deep: bool = False) -> tuple[str, ...]:
        """Of programs and links each time. Nothing tells whether others wrote into the maps, so they are read, which
        takes a hundredth of our time, but never later than the sync period allows."""
        beneath = await self._beneath.check(deep)
        self.checked = self._beneath.checked
        above = () if self._must_load else await self._check_layer(deep=deep)
        self._must_load = self._must_load or bool(above)
        self.drift = (*beneath, *above)
        return self.drift

    async def _check_layer(self, *, deep: bool) -> tuple[str, ...]:
        started = time.monotonic()
        reading = deep or started >= self._rest
        found = await self._layer.check(deep=reading)
        if reading:
            ended = time.monotonic()
            self._rest = ended + min(self._sync_period, 100 * (ended - started))
        return found

    async def sweep(self) -> None:
        await self._beneath.sweep()

    async def _end_stale(self) -> None:
        """New connections go where they should, whether or not old sockets could be ended."""
        try:
            await self._layer.end_stale()
        except (ClusterIPError, OSError) as error:
            log.error("proxy.sockets.failed family=%s error=%r", self.family, str(error))

    async def _node_addresses(self) -> tuple[str, ...]:
        served = await self._served_addresses()
        return tuple(await kernel.local_addresses(self.family)) if served is None else served


async def settle(config: ProxyConfig) -> tuple[ProxyConfig, Sockets | None]:
    """In eBPF mode the maps of this node; where the machine cannot do it, the same configuration in nftables mode: what
    is missing is logged, and every Service is served all the same."""
    if config.mode != "ebpf":
        return config, None
    try:
        return config, await open_sockets(config)
    except ClusterIPError as error:
        log.error("proxy.mode.fallback wanted=ebpf used=nftables reason=%r", error.message)
        return msgspec.structs.replace(config, mode="nftables"), None


async def open_sockets(config: ProxyConfig) -> Sockets:
    """The maps of this node, taken over or made. Raises Unavailable with one sentence if this machine cannot do it."""

    def look() -> Sockets:
        able(config)
        return Sockets(place(config), shipped(), netns.cookie())

    return await asyncio.to_thread(look)


def able(config: ProxyConfig) -> None:
    """Raises Unavailable with one sentence if this machine cannot do it. Blocking."""
    check(place(config), shipped())


def place(config: ProxyConfig) -> Place:
    """Raises Unavailable if no cgroup is named and the machine's root is not to be seen."""
    group = Path(config.ebpf.cgroup) if config.ebpf.cgroup else cgroup.machine_root()
    return Place(group, Path(config.ebpf.directory))


def above(
    beneath: FamilyProxier, sockets: Sockets, config: ProxyConfig, served_addresses: ServedAddresses
) -> SocketProxier:
    layer = SocketLayer(sockets, beneath.family, localhost_node_ports=serves_loopback(config, beneath.family))
    return SocketProxier(beneath, layer, served_addresses, config.nftables.sync_period)


def serves_loopback(config: ProxyConfig, family: Family) -> bool:
    """Node ports on the loopback address, unless others were named. Pure."""
    loopback = ipaddress.ip_address(LOOPBACK[family])
    named = [ipaddress.ip_network(a, strict=False) for a in config.node_port_addresses if a != rules.PRIMARY]
    ours = [n for n in named if n.version == loopback.version]
    return config.ebpf.localhost_node_ports and (not ours or any(loopback in n for n in ours))


async def remove(directory: str) -> tuple[ClusterIPError, ...]:
    """Take eBPF mode away, if it is there; what could not be done."""
    try:
        if await asyncio.to_thread(attach.remove, Path(directory)):
            log.info("proxy.leftovers.removed mode=ebpf directory=%s", directory)
    except ClusterIPError as error:
        return (error,)
    return ()
