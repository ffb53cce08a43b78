"""A packet on its way through a node's hooks, for the walks that say what a dataplane's rules do with it. Pure.

Every branch is taken. A rule that a walk does not know is refused, never skipped: a skipped rule is a wrong answer.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from clusterip.dataplane.node import Host
from clusterip.errors import ClusterIPError
from clusterip.services.route import Delivered, Dropped, Outcome, Packet, Passed, Rejected, Source


class NotModelled(ClusterIPError):
    """A rule that the walk does not know."""


@dataclass(frozen=True, slots=True)
class Flow:
    packet: Packet
    address: str  # destination now
    port: int
    interface: str  # it came in by; "": it began here
    mark: int = 0
    rewritten: bool = False
    masqueraded: bool = False


class End(Enum):
    ACCEPT = "accept"
    DROP = "drop"
    REJECT = "reject"
    FELL_THROUGH = "fell through"  # the end of a chain, or a return from it


Ways: TypeAlias = Iterable[tuple[End, Flow]]
Hook: TypeAlias = Callable[[str, str, Flow], Ways]  # what becomes of a flow at "nat" or "filter", and a hook


def begin(packet: Packet, host: Host) -> Flow:
    interface = {Source.POD: host.pod_interface, Source.NODE: "", Source.OUTSIDE: host.uplink}[packet.source]
    return Flow(packet, packet.address, packet.port, interface)


def through(hook: Hook, packet: Packet, host: Host) -> Iterator[Outcome]:
    """By all hooks in the kernel's order: a new address is chosen, filters are asked, the source is hidden or not."""
    from_node = packet.source is Source.NODE
    for end, flow in hook("nat", "output" if from_node else "prerouting", begin(packet, host)):
        if end is End.DROP:
            yield Dropped()
        else:
            yield from _filtered(hook, flow, host, from_node)


def _filtered(hook: Hook, start: Flow, host: Host, from_node: bool) -> Iterator[Outcome]:
    here = is_local(start.address, host)
    passed = (["output"] if from_node else []) + (["input"] if here else [] if from_node else ["forward"])
    flows = [start]
    for name in passed:
        ended = [pair for flow in flows for pair in hook("filter", name, flow)]
        if any(end is End.DROP for end, _ in ended):
            yield Dropped()
        if any(end is End.REJECT for end, _ in ended):
            yield Rejected()
        flows = [flow for end, flow in ended if end in (End.ACCEPT, End.FELL_THROUGH)]
    stays = here and not from_node  # what does not leave the node meets no postrouting
    for flow in flows:
        for _, last in [(None, flow)] if stays else hook("nat", "postrouting", flow):
            yield Delivered(last.address, last.port, last.masqueraded) if last.rewritten else Passed()


def is_local(address: str, host: Host) -> bool:
    return address in host.addresses or ipaddress.ip_address(address).is_loopback


@lru_cache(maxsize=1 << 14)
def within(address: str, network: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)


def named(interface: str, pattern: str, wildcard: str) -> bool:
    """`wildcard` at the end of a pattern stands for anything: "+" in iptables, "*" in nft."""
    if pattern.endswith(wildcard):
        return bool(interface) and interface.startswith(pattern[:-1])
    return interface == pattern
