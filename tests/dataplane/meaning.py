"""What each mode does with a packet: what `services.route` says, and where a mode differs, what it does instead.

The one place that knows the differences: the laws of the programs and the tests on real clusters ask here. Each of the
differences is kube-proxy's own, or, in eBPF mode, what a socket cannot do.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clusterip.dataplane.node import Host
from clusterip.services.route import (
    Delivered,
    Dropped,
    Outcome,
    Outcomes,
    Packet,
    Passed,
    Policy,
    Rejected,
    Source,
    route,
)
from clusterip.services.table import Backend, Entry, Frontend, FrontendKind

PASSED: Outcomes = frozenset({Passed()})
REJECTED: Outcomes = frozenset({Rejected()})
DROPPED: Outcomes = frozenset({Dropped()})


@dataclass(frozen=True, slots=True)
class Where:
    """The node that handles a packet."""

    policy: Policy  # with a loopback address where node ports are wanted there; not every mode can
    host: Host
    service_cidrs: tuple[str, ...] = ()  # where ClusterIPs come from, as far as the proxy knows


def iptables(entries: Sequence[Entry], packet: Packet, where: Where) -> Outcomes:
    """Differs for the node's own packets to an external address that is not on it: they pass OUTPUT alone, where
    nothing refuses them. And a node port without a backend is refused, or dropped, on every address of the node, also
    on those that do not serve node ports."""
    found = route(entries, packet, where.policy)
    here = packet.address in where.host.addresses or is_loopback(packet.address)
    external = packet.address not in {e.cluster_ip for e in entries}
    if packet.source is Source.NODE and external and not here and found == REJECTED:
        return PASSED
    if here and found == PASSED:
        for entry in entries:
            if (entry.node_port, entry.protocol) == (packet.port, packet.protocol):
                missing = entry.has_backends and entry.external_local and not entry.local
                return DROPPED if missing else PASSED if entry.has_backends else REJECTED
    return found


def nftables(entries: Sequence[Entry], packet: Packet, where: Where) -> Outcomes:
    """Differs for packets that no Service claims: for a port that a ClusterIP does not have they are refused, for an
    address in the cluster's ranges that no Service has they are dropped. No node port answers on loopback."""
    found = route(entries, packet, without_loopback(where.policy))
    if found == PASSED:
        if packet.address in {e.cluster_ip for e in entries}:
            return REJECTED
        address = ipaddress.ip_address(packet.address)
        if any(address in ipaddress.ip_network(cidr) for cidr in where.service_cidrs):
            return DROPPED
    return found


def sockets(entries: Sequence[Entry], packet: Packet, where: Where) -> Outcomes:
    """Of eBPF mode, for its first layer: `Passed` leaves the connection to the packets' dataplane.

    It leaves what is to be dropped, what comes from outside, SCTP, and a load balancer's address that not everybody may
    reach. It knows a pod without a detector. A connection is made with the client's own address, which on the node is
    the node's. Loopback is for the node's own processes.
    """
    if packet.source is Source.OUTSIDE or packet.protocol == "SCTP":
        return PASSED
    policy = where.policy if packet.source is Source.NODE else without_loopback(where.policy)
    found = route(entries, packet, replace(policy, detects_pods=True))
    if found == DROPPED or (_restricted(entries, packet) and found != REJECTED):
        return PASSED
    return frozenset(_with_own_source(outcome, packet) for outcome in found)


def ebpf(entries: Sequence[Entry], packet: Packet, where: Where) -> Outcomes:
    """Sockets first, packets for what those leave."""
    found = sockets(entries, packet, where)
    return nftables(entries, packet, where) if found == PASSED else found


def ipvs(entries: Sequence[Entry], packet: Packet, where: Where) -> Outcomes:
    """Differs as `clusterip.dataplane.ipvs.outcomes` says: one virtual server serves all clients alike."""
    policy = without_loopback(where.policy)
    for entry in entries:
        for frontend in entry.frontends():
            here = {frontend.address} if frontend.address else policy.node_port_addresses
            if packet.address in here and (packet.port, packet.protocol) == (frontend.port, frontend.protocol):
                return _virtual(entry, frontend, packet, policy)
    bound = {a for e in entries for a in (e.cluster_ip, *e.external_ips, *e.load_balancer_ips)}
    health = {e.health_check_node_port for e in entries}
    refused = packet.address in bound - where.host.addresses and packet.port not in health
    return REJECTED if refused else PASSED


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def without_loopback(policy: Policy) -> Policy:
    served = frozenset(a for a in policy.node_port_addresses if not is_loopback(a))
    return replace(policy, node_port_addresses=served)


def _restricted(entries: Sequence[Entry], packet: Packet) -> bool:
    asked = (packet.port, packet.protocol)
    return any(
        e.source_ranges and packet.address in e.load_balancer_ips and asked == (e.port, e.protocol) for e in entries
    )


def _with_own_source(outcome: Outcome, packet: Packet) -> Outcome:
    match outcome:
        case Delivered(address, port):
            return Delivered(address, port, packet.source is Source.NODE)
        case _:
            return outcome


def _virtual(entry: Entry, frontend: Frontend, packet: Packet, policy: Policy) -> Outcomes:
    local = entry.external_local if frontend.kind.external else entry.internal_local
    backends = (entry.local or entry.cluster) if local else entry.cluster
    from_node = packet.source is Source.NODE
    if frontend.kind is FrontendKind.LOAD_BALANCER and not _admitted(entry, packet, policy):
        asked = not from_node or (packet.source_address == packet.address and bool(backends))
        if asked:
            return DROPPED
    if not backends:
        return REJECTED
    if entry.affinity_seconds and packet.remembered in backends:
        backends = (packet.remembered,)
    masquerade = not entry.external_local
    if frontend.kind is FrontendKind.CLUSTER_IP:
        own = packet.source is Source.POD
        to_itself = not policy.detects_pods and packet.source_address == packet.address
        masquerade = policy.masquerade_all or (policy.detects_pods and not own) or to_itself
    source = packet.source_address
    stays = "" if from_node else policy.node_ip  # a backend that is a process of the node: nothing is sent on
    found = frozenset(
        # The set of backends that may reach themselves holds this node's own.
        Delivered(b.address, b.port, (masquerade and b.address != stays) or (b.local and b.address == source))
        for b in backends
    )
    if not local and not from_node:
        assert found == route([entry], packet, policy), "without a Local policy there is no exception to the spec"
    return found


def _admitted(entry: Entry, packet: Packet, policy: Policy) -> bool:
    """Source ranges, as the specification has them: seen where there is a backend."""
    probe = (Backend("192.0.2.99", 1),)
    return route([replace(entry, cluster=probe, local=probe, has_backends=True)], packet, policy) != DROPPED
