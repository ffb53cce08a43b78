"""What another proxy mode, ours or kube-proxy's own, has left in the kernel."""

import logging
from collections.abc import AsyncIterator
from typing import TypeAlias

from clusterip.dataplane.iptables import Config, Installed
from clusterip.dataplane.iptables import apply as iptables
from clusterip.dataplane.iptables.program import Jump
from clusterip.dataplane.ipvs import apply as virtual_servers
from clusterip.dataplane.ipvs import chains
from clusterip.dataplane.ipvs import config as virtual_config
from clusterip.dataplane.nftables import TABLE
from clusterip.dataplane.nftables import apply as nftables
from clusterip.errors import ClusterIPError
from clusterip.kernel import iptables as kernel
from clusterip.kernel.iptables import VariantName
from clusterip.proxy import sockets
from clusterip.proxy.config import EBPF
from clusterip.proxy.node import FAMILIES
from clusterip.proxy.rules import TABLE_MODES
from clusterip.services.table import Family

_Kept: TypeAlias = dict[Family, dict[VariantName, Installed]]
log = logging.getLogger(__name__)

KUBE_PROXY = "kube-proxy"  # the table of kube-proxy's nftables mode


async def remove_others(mode: str, netns: str = "", directory: str = EBPF().directory) -> None:
    """What the other modes have left; what cannot be removed is logged. To be called when our own rules are complete,
    so that there is no moment without any."""
    if mode != "ebpf":
        for error in await sockets.remove(directory):
            log.warning("proxy.leftovers.stay mode=%s reason=%r", mode, error.message)
    if mode != "ipvs":
        for error in await _remove_virtual(netns, beside_iptables=mode == "iptables"):
            log.warning("proxy.leftovers.stay mode=%s reason=%r", mode, error.message)
    kept = await _virtual_rules(netns) if mode == "ipvs" else {}
    removed = _remove(netns, iptables_mode=mode != "iptables", nftables_mode=mode not in TABLE_MODES, kept=kept)
    async for error in removed:
        log.warning("proxy.leftovers.stay mode=%s reason=%r", mode, error.message)


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


async def _remove_virtual(netns: str, *, beside_iptables: bool = False) -> tuple[ClusterIPError, ...]:
    """What IPVS mode has left, if the device is there; what could not be done."""
    if not virtual_servers.has_device(netns):
        return ()
    errors: list[ClusterIPError] = []
    for family in FAMILIES:
        try:
            for rules in await _virtual_variants(family, netns):
                plain = await iptables.usable(family, netns)
                beside = beside_iptables and plain is not None and plain.variant == rules.programs.variant
                shared = chains.Shared.LEAVE if beside else chains.Shared.EMPTY
                await virtual_servers.clean_up(rules, virtual_config.Config(family=family), shared)
        except ClusterIPError as error:
            errors.append(error)
    if await virtual_servers.remove_device(netns):
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
