"""What another proxy mode, ours or kube-proxy's own, has left in the kernel."""

import logging

from clusterip.dataplane.iptables import Config
from clusterip.dataplane.iptables.apply import clean_up
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel.run import run
from clusterip.proxy.node import FAMILIES

log = logging.getLogger(__name__)

_NFTABLES = ("ip kube-proxy", "ip6 kube-proxy")  # the tables of kube-proxy's nftables mode


async def remove_nftables(netns: str = "") -> None:
    """A mode that starts takes those of the nftables mode away; if it cannot, that is logged and it starts."""
    try:
        await _delete_tables(netns)
    except ClusterIPError as error:
        log.warning("proxy.leftovers.stay mode=nftables reason=%r", error.message)


async def remove_all(netns: str = "") -> tuple[ClusterIPError, ...]:
    """Everything a Service proxy writes, of every family and variant; what could not be done."""
    errors: list[ClusterIPError] = []
    for family in FAMILIES:
        errors += await clean_up(Config(family=family), netns)
    try:
        await _delete_tables(netns)
    except ClusterIPError as error:
        errors.append(error)
    return tuple(errors)


async def _delete_tables(netns: str) -> None:
    try:
        listed = (await run(("nft", "list", "tables"), netns=netns)).stdout.decode(errors="replace")
    except Unavailable:
        return  # no nft program: nobody here has written such tables
    there = [table for table in _NFTABLES if f"table {table}" in listed.splitlines()]
    if there:
        text = "".join(f"delete table {table}\n" for table in there)
        await run(("nft", "-f", "-"), stdin=text.encode(), netns=netns)
        log.info("proxy.leftovers.removed tables=%r", there)
