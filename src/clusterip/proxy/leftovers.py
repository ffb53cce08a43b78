"""What another proxy mode, ours or kube-proxy's own, has left in the kernel."""

import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from clusterip.dataplane.iptables import Config, Installed
from clusterip.dataplane.iptables import apply as iptables
from clusterip.dataplane.iptables.program import Jump
from clusterip.dataplane.ipvs import apply as virtual_servers
from clusterip.dataplane.ipvs import chains, leaving
from clusterip.dataplane.ipvs import config as virtual_config
from clusterip.dataplane.ipvs.compile import RealServer
from clusterip.dataplane.nftables import TABLE
from clusterip.dataplane.nftables import apply as nftables
from clusterip.errors import ClusterIPError
from clusterip.kernel import iptables as kernel
from clusterip.kernel.iptables import VariantName
from clusterip.proxy import sockets
from clusterip.proxy.config import EBPF
from clusterip.proxy.rules import TABLE_MODES
from clusterip.services.table import FAMILIES, Entry, Family

_Kept: TypeAlias = dict[Family, dict[VariantName, Installed]]
_MayGo: TypeAlias = Callable[[virtual_servers.Rules, virtual_config.Config], Awaitable[bool]]
log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds between looks at what is still to go: doubling
_NOBODY: Mapping[Family, str] = MappingProxyType({})
KUBE_PROXY = "kube-proxy"  # the table of kube-proxy's nftables mode


class Leftovers:
    """Takes away what the modes that are not in force have here, when ours is complete, so that there is no moment
    without any. What cannot go yet, because connections are on it or because it is refused, is tried again."""

    def __init__(self, directory: str = EBPF().directory, node_ips: Mapping[Family, str] = _NOBODY, netns: str = ""):
        """`directory`: of eBPF mode. `node_ips`: with which address the node speaks."""
        self.left: tuple[str, ...] = ()
        self._directory = directory
        self._node_ips = node_ips
        self._netns = netns
        self._looked = ""  # the mode that was in force when all others' rules were last looked for
        self._refused: tuple[str, ...] = ()
        self._pause = FIRST_PAUSE
        self._next = 0.0  # monotonic time; inf: all is gone

    def __repr__(self) -> str:
        return f"Leftovers({len(self.left)} left)"

    def due(self, now: float) -> bool:
        return now >= self._next

    async def yield_to(self, mode: str) -> None:
        """Before `mode` is written for the first time: from now on the node must not take addresses for its own that
        only IPVS mode gives it, or its connections would end with them."""
        self._looked = ""
        if mode != "ipvs" and virtual_servers.has_device(self._netns):
            for family in FAMILIES:
                try:
                    await leaving.give_up_sources(family, self._node_ips.get(family, ""), self._netns)
                except ClusterIPError as error:
                    log.warning("proxy.leftovers.sources family=%s reason=%r", family, error.message)

    async def remove(self, mode: str, entries: Iterable[Entry]) -> None:
        """What is in force is `mode`, with `entries`."""
        serving = frozenset(RealServer(b.address, b.port) for e in entries if e.protocol != "TCP" for b in e.serving)
        virtual: list[str] = []
        if mode != "ipvs":
            virtual = await _leave_virtual(self._netns, serving, beside_iptables=mode == "iptables")
        if mode != self._looked or self._refused or (self.left and not virtual):
            self._refused = await self._take_away(mode)
            for line in self._refused:
                log.warning("proxy.leftovers.stay mode=%s reason=%r", mode, line)
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if mode == self._looked else FIRST_PAUSE
        self._looked, self.left = mode, (*virtual, *self._refused)
        self._next = time.monotonic() + self._pause if self.left else math.inf

    async def _take_away(self, mode: str) -> tuple[str, ...]:
        try:
            return tuple([error.message async for error in _remove_others(mode, self._netns, self._directory)])
        except OSError as error:
            return (str(error),)


async def _remove_others(mode: str, netns: str, directory: str) -> AsyncIterator[ClusterIPError]:
    """All but what IPVS mode has; what could not be done."""
    if mode != "ebpf":
        for error in await sockets.remove(directory):
            yield error
    kept = await _virtual_rules(netns) if mode == "ipvs" or virtual_servers.has_device(netns) else {}
    others = _remove(netns, iptables_mode=mode != "iptables", nftables_mode=mode not in TABLE_MODES, kept=kept)
    async for error in others:
        yield error


async def _leave_virtual(netns: str, serving: frozenset[RealServer], *, beside_iptables: bool) -> list[str]:
    """Away with what IPVS mode has left, but for what connections are on; that, in words."""
    left = []

    async def leave(rules: virtual_servers.Rules, config: virtual_config.Config) -> bool:
        stay = await leaving.leave(rules, config, serving)
        if stay:
            left.append(f"IPVS ({config.family}): {stay} virtual servers whose connections go on")
        return not stay

    errors = await _remove_virtual(netns, leave, beside_iptables=beside_iptables)
    for error in errors:
        log.warning("proxy.leftovers.stay mode=ipvs reason=%r", error.message)
    return left + [error.message for error in errors]


async def _shared(rules: virtual_servers.Rules, beside_iptables: bool) -> chains.Shared:
    """What to do with chains that iptables mode has by the same names: it has filled them, or takes them away."""
    plain = await iptables.usable(rules.programs.family, rules.netns)
    beside = beside_iptables and plain is not None and plain.variant == rules.programs.variant
    return chains.Shared.LEAVE if beside else chains.Shared.EMPTY


async def remove_all(netns: str = "", directory: str = EBPF().directory) -> tuple[ClusterIPError, ...]:
    """Everything a Service proxy writes, of every family and variant; what could not be done."""
    above = await sockets.remove(directory)
    above += await _remove_virtual(netns)
    return (*above, *[error async for error in _remove(netns, iptables_mode=True, nftables_mode=True)])


async def _virtual_rules(netns: str) -> _Kept:
    """What IPVS mode has now that iptables mode has by the same names: in the variant that plain `iptables` means."""
    kept: _Kept = {}
    for family in FAMILIES:
        if found := await iptables.usable(family, netns):
            shared = Installed(chains.SHARED, frozenset(Jump(*jump) for jump in chains.jumps()))
            kept[family] = {found.variant: shared}
    return kept


async def _go_at_once(_rules: virtual_servers.Rules, _config: virtual_config.Config) -> bool:
    return True


async def _remove_virtual(
    netns: str, may_go: _MayGo = _go_at_once, *, beside_iptables: bool = False
) -> tuple[ClusterIPError, ...]:
    """What IPVS mode has left, where it may go, and last the device that tells of it; what could not be done."""
    if not virtual_servers.has_device(netns):
        return ()
    errors: list[ClusterIPError] = []
    stay = False
    for family in FAMILIES:
        config = virtual_config.Config(family=family)
        try:
            for rules in await _virtual_variants(family, netns):
                if await may_go(rules, config):
                    await virtual_servers.clean_up(rules, config, await _shared(rules, beside_iptables))
                else:
                    stay = True
        except ClusterIPError as error:
            errors.append(error)
    if not (stay or errors) and await virtual_servers.remove_device(netns):
        log.info("proxy.leftovers.removed device=%s", virtual_config.DEVICE)
    return tuple(errors)


async def _virtual_variants(family: Family, netns: str) -> list[virtual_servers.Rules]:
    """Of iptables: those that have chains of IPVS mode; none has: the plain one, as there may be sets."""
    variants: tuple[VariantName, ...] = ("nft", "legacy")
    found = [await iptables.usable(family, netns, variant) for variant in variants]
    marked = [p for p in found if p and "KUBE-IPVS-FILTER" in await kernel.save(p)]
    plain = await iptables.usable(family, netns)
    return [virtual_servers.Rules(p) for p in marked or ([plain] if plain else [])]


_NOTHING: _Kept = {}


async def _remove(
    netns: str, *, iptables_mode: bool, nftables_mode: bool, kept: _Kept = _NOTHING
) -> AsyncIterator[ClusterIPError]:
    """What could not be done. kube-proxy's table of the nftables mode goes in any case: ours has another name."""
    for family in FAMILIES:
        if iptables_mode:
            for error in await iptables.clean_up(Config(family=family), netns, kept.get(family, {})):
                yield error
        for table in (KUBE_PROXY, *((TABLE,) if nftables_mode else ())):
            try:
                if await nftables.clean_up(family, table, netns):
                    log.info("proxy.leftovers.removed family=%s table=%s", family, table)
            except ClusterIPError as error:
                yield error
