"""The specification: where a new connection's first packet goes, whatever programs the kernel.

Every dataplane is held against `route` by property tests.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from clusterip.services.table import Backend, Entry, Frontend, FrontendKind, Protocol


class Source(Enum):
    """Where a packet comes from, as seen by the node that handles it."""

    POD = "pod"  # of this node, or, with ClusterCIDR detection, of the cluster
    NODE = "node"  # a process of this node
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a connection. Addresses are canonical."""

    source: Source
    source_address: str
    address: str  # destination
    port: int
    protocol: Protocol = "TCP"
    remembered: Backend | None = None  # where this client last went by the Service port, within its affinity's timeout


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination becomes a backend's; the source becomes the node's if `masqueraded`."""

    address: str
    port: int
    masqueraded: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """The client is told at once: connection refused."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The client hears nothing."""


@dataclass(frozen=True, slots=True)
class Passed:
    """No Service's business: the packet goes on as it is."""


Outcome: TypeAlias = Delivered | Rejected | Dropped | Passed
Outcomes: TypeAlias = frozenset[Outcome]  # every outcome the packet may have; never empty


@dataclass(frozen=True, slots=True)
class Policy:
    """What the node decides, besides the service table."""

    node_port_addresses: frozenset[str] = frozenset()  # those of the node that answer on node ports
    node_ip: str = ""
    detects_pods: bool = True  # a pod's packets can be told from others'
    masquerade_all: bool = False


def route(entries: Iterable[Entry], packet: Packet, policy: Policy) -> Outcomes:
    """Every outcome `packet` may have. Where several entries claim it, which one answers is not promised."""
    for entry in entries:
        for frontend in entry.frontends():
            if _claims(frontend, packet, policy):
                return _answer(entry, frontend, packet, policy)
    return frozenset({Passed()})


def _claims(frontend: Frontend, packet: Packet, policy: Policy) -> bool:
    addresses = {frontend.address} if frontend.address else policy.node_port_addresses
    return packet.address in addresses and (packet.port, packet.protocol) == (frontend.port, frontend.protocol)


def _answer(entry: Entry, frontend: Frontend, packet: Packet, policy: Policy) -> Outcomes:
    if not entry.has_backends:
        return frozenset({Rejected()})
    if frontend.kind is FrontendKind.LOAD_BALANCER and not _admitted(entry, packet, policy):
        return frozenset({Dropped()})
    own_pod = packet.source is Source.POD and policy.detects_pods
    own_node = packet.source is Source.NODE
    if frontend.kind.external:
        local = entry.external_local and not (own_pod or own_node)
        masquerade = own_node or not entry.external_local
    else:
        local = entry.internal_local
        masquerade = policy.masquerade_all or (policy.detects_pods and not own_pod)
    backends = entry.local if local else entry.cluster
    if entry.affinity_seconds and packet.remembered in backends:
        backends = (packet.remembered,)
    # What stays on the node keeps its source: a backend may be a process of the node, for all but the node itself.
    stays = "" if own_node else policy.node_ip
    ways = (
        Delivered(b.address, b.port, (masquerade and b.address != stays) or b.address == packet.source_address)
        for b in backends
    )
    return frozenset(ways) or frozenset({Dropped()})


def _admitted(entry: Entry, packet: Packet, policy: Policy) -> bool:
    """Source ranges. A node that is itself within them may speak with the load balancer's address as its source."""
    ranges = [ipaddress.ip_network(r) for r in entry.source_ranges]
    source = ipaddress.ip_address(packet.source_address)
    if not ranges or any(source in r for r in ranges):
        return True
    node_within = bool(policy.node_ip) and any(ipaddress.ip_address(policy.node_ip) in r for r in ranges)
    return node_within and packet.source_address in entry.load_balancer_ips
