"""What each dataplane makes of a page's step: its configuration, its answers, and what it writes. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
from tests.scenarios.members import (
    BRIDGE,
    FAMILIES,
    GATEWAY,
    HERE,
    LOCAL_PODS,
    LOOPBACK,
    MEMBERS,
    NODE,
    POD_RANGES,
    SERVICE_RANGES,
    is_nodes,
    name_of,
    node_addresses,
)
from tests.scenarios.objects import State, documents_of
from tests.scenarios.page import Answer, Step

from clusterip.dataplane import iptables, ipvs, nftables
from clusterip.dataplane.ebpf import document as maps
from clusterip.dataplane.ebpf.compile import compile_entry as compile_for_sockets
from clusterip.dataplane.ebpf.config import Config as SocketConfig
from clusterip.dataplane.ebpf.plane import EBPF
from clusterip.dataplane.iptables import outcomes as iptables_outcomes
from clusterip.dataplane.ipvs import document as servers
from clusterip.dataplane.ipvs.plane import IPVS
from clusterip.dataplane.nftables import outcomes as nftables_outcomes
from clusterip.dataplane.node import Detector, FromCIDR, FromInterface, Host
from clusterip.model.objects import EndpointSlice, Service
from clusterip.proxy.service_health import checks
from clusterip.rulesets.iptables import Ruleset
from clusterip.rulesets.nft.text import table_text
from clusterip.rulesets.nft.values import Table
from clusterip.services.notation import Destination
from clusterip.services.resolve import SERVICE_NAME_LABEL, NodeContext, resolve
from clusterip.services.route import Delivered, Dropped, Outcomes, Packet, Passed, Policy, Rejected, Source, route
from clusterip.services.table import Entry, Family

NodeFields = Mapping[str, Any]


@cache
def entries(step: Step, family: Family) -> tuple[Entry, ...]:
    """The service table of the step, by key."""
    node = NodeContext(HERE, step.node.get("zone", ""))
    services, slices = objects(step.state)
    found = [
        entry
        for service in services
        for entry in resolve(
            service,
            [
                s
                for s in slices
                if s.metadata.namespace == service.metadata.namespace
                and s.metadata.labels.get(SERVICE_NAME_LABEL) == service.metadata.name
            ],
            node,
            family,
        )
    ]
    return tuple(sorted(found, key=lambda entry: entry.key))


def objects(state: State) -> tuple[list[Service], list[EndpointSlice]]:
    documents = list(documents_of(state))
    return (
        [msgspec.convert(d, Service) for d in documents if d["kind"] == "Service"],
        [msgspec.convert(d, EndpointSlice) for d in documents if d["kind"] == "EndpointSlice"],
    )


# --- the node


def detector(node: NodeFields, family: Family) -> Detector | None:
    """`none`, an interface's name, or pod ranges; left out: the cluster's range."""
    given = node.get("detector", POD_RANGES[family])
    if given == "none":
        return None
    ranges = [str(g) for g in (given if isinstance(given, list) else [given])]
    if "/" not in ranges[0]:
        return FromInterface(ranges[0])
    ours = [r for r in ranges if ipaddress.ip_network(r).version == int(family[-1])]
    return FromCIDR(ours[0]) if ours else None


def served_addresses(node: NodeFields, family: Family) -> tuple[str, ...] | None:
    """The node's addresses in the ranges that `nodePortAddresses` names; None: it names none."""
    if "nodePortAddresses" not in node:
        return None
    ranges = [ipaddress.ip_network(r) for r in node["nodePortAddresses"]]
    own = [NODE.address(family), GATEWAY.address(family), LOOPBACK[family]]
    return tuple(a for a in own if any(ipaddress.ip_address(a) in r for r in ranges))


def iptables_config(node: NodeFields, family: Family) -> iptables.Config:
    return iptables.Config(
        family=family,
        node_ip=NODE.address(family),
        detector=detector(node, family),
        masquerade_all=node.get("masqueradeAll", False),
        localhost_node_ports=node.get("localhostNodePorts", True),
        node_port_addresses=served_addresses(node, family),
    )


def nftables_config(node: NodeFields, family: Family) -> nftables.Config:
    """In this mode, and so in eBPF mode, node ports are the node's own address' where nothing else is said."""
    return nftables.Config(
        family=family,
        node_ip=NODE.address(family),
        detector=detector(node, family),
        masquerade_all=node.get("masqueradeAll", False),
        node_port_addresses=served_addresses(node, family) or (NODE.address(family),),
        service_cidrs=service_ranges(node, family),
    )


def service_ranges(node: NodeFields, family: Family) -> tuple[str, ...]:
    ranges = node.get("serviceRanges", list(SERVICE_RANGES.values()))
    return tuple(r for r in ranges if ipaddress.ip_network(r).version == int(family[-1]))


def ipvs_config(node: NodeFields, family: Family) -> ipvs.Config:
    own = (NODE.address(family), GATEWAY.address(family))
    served = served_addresses(node, family)
    return ipvs.Config(
        family=family,
        node_ip=NODE.address(family),
        detector=detector(node, family),
        masquerade_all=node.get("masqueradeAll", False),
        node_addresses=own if served is None else tuple(a for a in served if a in own),
        host_addresses=frozenset(own),
    )


def socket_config(node: NodeFields, family: Family) -> SocketConfig:
    served = served_addresses(node, family)
    own = (NODE.address(family),) if served is None else served
    return SocketConfig(family, own, served is None or LOOPBACK[family] in served)


# --- what becomes of a packet


def packet(client: str, to: Destination, node: NodeFields) -> Packet:
    """As the node of the page sees it."""
    family: Family = "IPv6" if ":" in to.address else "IPv4"
    return Packet(*_source(client, to, node, family), to.address, to.port, to.protocol)


def _source(client: str, to: Destination, node: NodeFields, family: Family) -> tuple[Source, str]:
    address = MEMBERS[client].address(family)
    if client == "node":
        # A process that names no address of its own speaks to its node with the one it speaks to.
        return Source.NODE, to.address if is_nodes(to.address) else address
    told = detector(node, family)
    inside = isinstance(told, FromCIDR) and ipaddress.ip_address(address) in ipaddress.ip_network(told.cidr)
    if client in LOCAL_PODS and not isinstance(told, FromCIDR):
        inside = True
    return (Source.POD if inside else Source.OUTSIDE), address


def specified(step: Step, sent: Packet, family: Family) -> Outcomes:
    """What `services.route` says. Node ports are the node's own address', where the page names no others."""
    served = served_addresses(step.node, family)
    policy = Policy(
        frozenset((NODE.address(family),) if served is None else served),
        NODE.address(family),
        detector(step.node, family) is not None,
        step.node.get("masqueradeAll", False),
    )
    return route(entries(step, family), sent, policy)


def outcomes(dataplane: str, step: Step, sent: Packet, family: Family) -> Outcomes:
    """What the program that the dataplane writes for the step does with the packet."""
    table, host = entries(step, family), Host(node_addresses(family), pod_interface=BRIDGE)
    match dataplane:
        case "iptables":
            return iptables_outcomes.walk(ruleset(step, family), sent, host)
        case "ipvs":
            virtual = IPVS(ipvs_config(step.node, family), host)
            bound = {a for e in table for a in (e.cluster_ip, *e.external_ips, *e.load_balancer_ips)}
            if sent.source is Source.NODE and sent.address in bound:  # the node has it, and speaks with what it asks
                sent = replace(sent, source_address=sent.address)
            return virtual.outcomes([virtual.compile(e) for e in table], sent)
        case "ebpf" if sent.source is Source.NODE or name_of(sent.source_address) in LOCAL_PODS:
            sockets = EBPF(socket_config(step.node, family))
            above = sockets.outcomes([sockets.compile(e) for e in table], sent)
            if above != {Passed()}:
                return above
    return nftables_outcomes.walk(nft_table(step, family), sent, host)


@cache
def ruleset(step: Step, family: Family) -> Ruleset:
    """Of iptables mode; read once for all packets of a step, as the table below is."""
    config = iptables_config(step.node, family)
    return iptables_outcomes.program([iptables.compile_entry(e, config) for e in entries(step, family)], config)


@cache
def nft_table(step: Step, family: Family) -> Table:
    config = nftables_config(step.node, family)
    return nftables.program([nftables.compile_entry(e, config) for e in entries(step, family)], config)


def health(step: Step, sent: Packet, family: Family) -> Answer | None:
    """Of the proxy's own server on a health check node port, for a packet that no rule takes; None: there is none."""
    asked = checks(entries(step, family)).get(sent.port)
    if asked is None or not is_nodes(sent.address) or sent.protocol != "TCP":
        return None
    return Answer("healthy" if asked.endpoints else "unhealthy")


def answer(found: Outcomes, sent: Packet, step: Step, family: Family) -> Answer:
    """In a page's words. The node's own packets have a source of the node's whether or not it is hidden."""
    if found == {Rejected()}:
        return Answer("refused")
    if found == {Dropped()}:
        return Answer("dropped")
    if found == {Passed()}:
        return health(step, sent, family) or Answer("passed")
    strange = [o for o in found if not isinstance(o, Delivered)]
    assert not strange, f"{found}: some of it is no delivery"
    on_node = sent.source is Source.NODE
    ways = {(name_of(o.address), o.port, o.masqueraded or on_node) for o in found if isinstance(o, Delivered)}
    return Answer("delivered", tuple(sorted(ways)))


# --- what it writes


def written(dataplane: str, step: Step, family: Family) -> str:
    """The whole program, as the tool that people know prints or reads it."""
    table = entries(step, family)
    match dataplane:
        case "iptables":
            config = iptables_config(step.node, family)
            return iptables.complete((iptables.compile_entry(e, config) for e in table), config)
        case "nftables":
            return table_text(nft_table(step, family))
        case "ipvs":
            virtual = ipvs_config(step.node, family)
            return servers.complete([ipvs.compile_entry(e, virtual) for e in table], virtual)
        case _:
            sockets = socket_config(step.node, family)
            return maps.complete([compile_for_sockets(e, sockets) for e in table])


def all_families(steps: Sequence[Step]) -> Iterable[Family]:
    """Those that have an entry at any time."""
    return (f for f in FAMILIES if any(entries(step, f) for step in steps))
