"""What the proxy takes from its Node: addresses, pod range, zone. Pure, but for the wait for them at start."""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Mapping

from clusterip.client.api import Api
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.model.objects import Node
from clusterip.model.resources import NODES
from clusterip.proxy.config import ProxyConfig
from clusterip.services.addresses import canonical_address
from clusterip.services.resolve import ZONE_LABEL, NodeContext
from clusterip.services.table import FAMILIES, Family

log = logging.getLogger(__name__)

ADDRESS_PATIENCE = 30.0  # seconds to wait for the Node's addresses before going on without
POD_RANGE_PATIENCE = 300.0  # seconds to wait for its pod range, in mode NodeCIDR; then there is no start
_POLL = 1.0
_LOOPBACK: dict[Family, str] = {"IPv4": "127.0.0.1", "IPv6": "::1"}


class RangeChanged(ClusterIPError):
    """The node's pod range, which the rules were built on, is another one now. Exit status 1: start anew."""


def context(node: Node | None, name: str) -> NodeContext:
    return NodeContext(name, node.metadata.labels.get(ZONE_LABEL, "") if node else "")


def addresses(node: Node | None) -> dict[Family, str]:
    """The Node's address in each family: an internal one before an external one."""
    found: dict[Family, str] = {}
    listed = node.status.addresses if node else ()
    for kind in ("InternalIP", "ExternalIP"):
        for address in listed:
            for family in FAMILIES:
                if address.type == kind and (text := canonical_address(address.address, family)):
                    found.setdefault(family, text)
    return found


def node_ips(config: ProxyConfig, node: Node | None) -> Mapping[Family, str]:
    """The configured address before the Node's own, the loopback address where there is neither."""
    found = addresses(node)
    bound = ipaddress.ip_address(config.bind_address)
    if not bound.is_unspecified:
        found["IPv6" if bound.version == 6 else "IPv4"] = str(bound)
    return {family: found.get(family, _LOOPBACK[family]) for family in FAMILIES}


def pod_ranges(node: Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    return node.spec.pod_cidrs or ((node.spec.pod_cidr,) if node.spec.pod_cidr else ())


def pod_range(node: Node | None, family: Family) -> str:
    """The node's pod range in that family, canonical; "" if it has none."""
    for text in pod_ranges(node):
        network = ipaddress.ip_network(text, strict=False)
        if f"IPv{network.version}" == family:
            return str(network)
    return ""


async def find(api: Api, name: str, config: ProxyConfig) -> Node | None:
    """Our Node, once it has addresses; after 30 s as it is, or None. In mode NodeCIDR it must get a pod range.

    Raises Unavailable if the pod range does not come.
    """
    needs_range = config.detect_local_mode == "NodeCIDR"
    ends = time.monotonic() + (POD_RANGE_PATIENCE if needs_range else ADDRESS_PATIENCE)
    while True:
        node: Node | None = None
        try:
            node = await api.get(NODES, "", name, Node)
            without_range = needs_range and not pod_ranges(node)
            if addresses(node) and not without_range:
                return node
            missing = "it has no pod range yet" if without_range else "it has no address yet"
        except ClusterIPError as error:
            missing = error.message
        log.info("proxy.node.waiting node=%s reason=%r", name, missing)
        if time.monotonic() + _POLL > ends:
            break
        await asyncio.sleep(_POLL)
    if needs_range and not pod_ranges(node):
        hint = "set spec.podCIDR of the Node, or use another detectLocalMode"
        raise Unavailable(f"node {name}: no pod range within {POD_RANGE_PATIENCE:g} s: {missing}", hint=hint)
    log.warning("proxy.node.unknown node=%s reason=%r", name, missing)
    return node
