"""One entry of the service table -> its virtual servers, set members and addresses. Pure; equal entries give equal
pieces."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from clusterip.dataplane.ipvs import sets
from clusterip.dataplane.ipvs.config import Config
from clusterip.dataplane.ipvs.sets import Member
from clusterip.services.table import Backend, Entry, EntryKey, FrontendKind, Protocol


class At(NamedTuple):
    """Where a virtual server answers; no two answer at one place."""

    protocol: Protocol
    address: str
    port: int


class RealServer(NamedTuple):
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class VirtualServer:
    at: At
    scheduler: str
    persistent: int = 0  # seconds that a client keeps its real server; 0: not at all
    reals: tuple[RealServer, ...] = ()  # each with weight 1


@dataclass(frozen=True, slots=True)
class Piece:
    """All that one entry puts into the kernel. Members and addresses may be other entries' as well."""

    key: EntryKey
    servers: tuple[VirtualServer, ...] = ()
    members: tuple[Member, ...] = ()
    addresses: tuple[str, ...] = ()  # to be bound to the dummy device
    drops: tuple[At, ...] = ()  # load balancer addresses that the node itself must not reach: KUBE-IPVS-OUT-FILTER


def compile_entry(entry: Entry, config: Config) -> Piece:
    """`entry.family` must be `config.family`."""
    bound = [entry.cluster_ip]
    bound += [a for a in (*entry.external_ips, *entry.load_balancer_ips) if a not in config.host_addresses]
    addresses = tuple(dict.fromkeys(bound))
    members = (
        *(Member(sets.ADDRESSES, a) for a in addresses),
        *_loop_back(entry),
        *_frontends(entry),
        *_firewall(entry, config),
        *_ports(entry, config),
    )
    excluded = entry.source_ranges and not _admits_node(entry, config)
    drops = tuple(At(entry.protocol, a, entry.port) for a in entry.load_balancer_ips) if excluded else ()
    return Piece(entry.key, tuple(_servers(entry, config)), tuple(dict.fromkeys(members)), addresses, drops)


def _servers(entry: Entry, config: Config) -> Iterator[VirtualServer]:
    for frontend in entry.frontends():
        # One virtual server serves all clients alike, so a policy that nobody here satisfies gives way (B40).
        local = entry.external_local if frontend.kind.external else entry.internal_local
        backends = (entry.local or entry.cluster) if local else entry.cluster
        reals = tuple(RealServer(b.address, b.port) for b in backends)
        where = config.served_addresses if frontend.kind is FrontendKind.NODE_PORT else (frontend.address,)
        for address in where:
            at = At(entry.protocol, address, frontend.port)
            yield VirtualServer(at, config.scheduler, entry.affinity_seconds, reals)


def _loop_back(entry: Entry) -> Iterator[Member]:
    """A backend that reaches itself must see another source than itself."""
    both: dict[Backend, None] = dict.fromkeys((*entry.cluster, *entry.local))
    for b in both:
        if b.local:
            yield Member(sets.LOOP_BACK, f"{_tuple(b.address, entry.protocol, b.port)},{b.address}")


def _frontends(entry: Entry) -> Iterator[Member]:
    external = sets.EXTERNAL_IP_LOCAL if entry.external_local else sets.EXTERNAL_IP
    balancers = (sets.BALANCER_LOCAL, sets.BALANCER) if entry.external_local else (sets.BALANCER,)
    yield Member(sets.CLUSTER_IP, _tuple(entry.cluster_ip, entry.protocol, entry.port))
    for address in entry.external_ips:
        yield Member(external, _tuple(address, entry.protocol, entry.port))
    for address in entry.load_balancer_ips:
        for kind in balancers:
            yield Member(kind, _tuple(address, entry.protocol, entry.port))


def _firewall(entry: Entry, config: Config) -> Iterator[Member]:
    if not entry.source_ranges:
        return
    within = _admits_node(entry, config)
    for address in entry.load_balancer_ips:
        where = _tuple(address, entry.protocol, entry.port)
        for cidr in entry.source_ranges:
            for network in _halves(cidr):
                yield Member(sets.SOURCE_CIDR, f"{where},{network}")
        if within:
            # A process of the node speaks to an address of the node with that address as its own.
            yield Member(sets.SOURCE_IP, f"{where},{address}")
        yield Member(sets.FIREWALL, where)


def _ports(entry: Entry, config: Config) -> Iterator[Member]:
    if entry.health_check_node_port:
        yield Member(sets.HEALTH_CHECK, str(entry.health_check_node_port))
    if not (entry.node_port and config.served_addresses):
        return
    local, every = sets.NODE_PORTS[entry.protocol]
    for kind in (local, every) if entry.external_local else (every,):
        if kind.is_bitmap:
            yield Member(kind, str(entry.node_port))
        else:
            for address in config.served_addresses:
                yield Member(kind, _tuple(address, entry.protocol, entry.node_port))


def _admits_node(entry: Entry, config: Config) -> bool:
    if not config.node_ip:
        return False
    node = ipaddress.ip_address(config.node_ip)
    return any(node in ipaddress.ip_network(r) for r in entry.source_ranges)


def _halves(cidr: str) -> tuple[str, ...]:
    """As ipset prints it. A set knows no network of all addresses: two halves say the same."""
    network = ipaddress.ip_network(cidr)
    if network.prefixlen == 0:
        return tuple(str(half) for half in network.subnets())
    return (str(network.network_address) if network.num_addresses == 1 else str(network),)


def _tuple(address: str, protocol: Protocol, port: int) -> str:
    return f"{address},{protocol.lower()}:{port}"
