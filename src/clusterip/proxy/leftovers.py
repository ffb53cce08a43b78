"""What another proxy mode, ours or kube-proxy's own, has left in the kernel."""

import logging
from collections.abc import AsyncIterator

from clusterip.dataplane.iptables import Config
from clusterip.dataplane.iptables import apply as iptables
from clusterip.dataplane.nftables import TABLE
from clusterip.dataplane.nftables import apply as nftables
from clusterip.errors import ClusterIPError
from clusterip.proxy import sockets
from clusterip.proxy.config import EBPF
from clusterip.proxy.node import FAMILIES
from clusterip.proxy.rules import TABLE_MODES

log = logging.getLogger(__name__)

KUBE_PROXY = "kube-proxy"  # the table of kube-proxy's nftables mode


async def remove_others(mode: str, netns: str = "", directory: str = EBPF().directory) -> None:
    """What the other modes have left; what cannot be removed is logged. To be called when our own rules are complete,
    so that there is no moment without any."""
    if mode != "ebpf":
        for error in await sockets.remove(directory):
            log.warning("proxy.leftovers.stay mode=%s reason=%r", mode, error.message)
    async for error in _remove(netns, iptables_mode=mode != "iptables", nftables_mode=mode not in TABLE_MODES):
        log.warning("proxy.leftovers.stay mode=%s reason=%r", mode, error.message)


async def remove_all(netns: str = "", directory: str = EBPF().directory) -> tuple[ClusterIPError, ...]:
    """Everything a Service proxy writes, of every family and variant; what could not be done."""
    above = await sockets.remove(directory)
    return (*above, *[error async for error in _remove(netns, iptables_mode=True, nftables_mode=True)])


async def _remove(netns: str, *, iptables_mode: bool, nftables_mode: bool) -> AsyncIterator[ClusterIPError]:
    """What could not be done. kube-proxy's table of the nftables mode goes in any case: ours has another name."""
    for family in FAMILIES:
        if iptables_mode:
            for error in await iptables.clean_up(Config(family=family), netns):
                yield error
        for table in (KUBE_PROXY, *((TABLE,) if nftables_mode else ())):
            try:
                if await nftables.clean_up(family, table, netns):
                    log.info("proxy.leftovers.removed family=%s table=%s", family, table)
            except ClusterIPError as error:
                yield error
