"""What the proxy of one node would write for manifests, in each mode, and what of them is probably not meant."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterip.cli import manifests
from clusterip.cli.manifests import Manifests
from clusterip.dataplane import nftables
from clusterip.dataplane.ebpf import config as ebpf
from clusterip.dataplane.ebpf import document
from clusterip.dataplane.ebpf.compile import compile_entry as compile_for_sockets
from clusterip.dataplane.iptables import (
    LARGE_CLUSTER_ENDPOINTS,
    Config,
    FromCIDR,
    compile_entry,
    complete,
)
from clusterip.dataplane.ipvs import Config as IPVSConfig
from clusterip.dataplane.ipvs import compile_entry as compile_for_servers
from clusterip.dataplane.ipvs import document as servers
from clusterip.errors import BadInput
from clusterip.model.names import label_value, qualified_name
from clusterip.model.objects import EndpointSlice
from clusterip.rulesets.nft.text import table_text
from clusterip.services.addresses import canonical_address, canonical_range
from clusterip.services.resolve import SERVICE_NAME_LABEL, ZONE_LABEL, NodeContext, is_served, resolve
from clusterip.services.table import FAMILIES, Entry, Family

if TYPE_CHECKING:
    from clusterip.cli.rules import Options


def written(given: "Options") -> tuple[str, tuple[str, ...]]:
    """The text, and sentences about what was passed over or is doubtful. Raises BadInput."""
    node = NodeContext(given.node_name, _labels(given.node_labels).get(ZONE_LABEL, ""))
    ranges = _ranges(given.service_cidr, "--service-cidr")
    found = manifests.read(given.files)
    tables = {f: _entries(found, node, f) for f in FAMILIES}
    family = given.family or _first_family(tables)
    entries = tables[family]
    both = not given.family and all(tables.values())
    other = ("the Services have IPv4 and IPv6 addresses: IPv4 here, --family IPv6 for the other",) if both else ()
    doubts = (*other, *found.passed_over, *_doubts(found, entries, ranges), *_unserved(entries, given, family))
    match given.proxy_mode:
        case "ebpf":
            text = maps(entries, _socket_config(given, family))
        case "ipvs":
            text = virtual_servers(entries, _server_config(given, family))
        case "nftables":
            text = table(entries, _table_config(given, family, ranges))
        case _:
            text = rules(entries, _config(given, family))
    return text, doubts


def rules(entries: Sequence[Entry], config: Config) -> str:
    large = sum(e.known for e in entries) > LARGE_CLUSTER_ENDPOINTS
    settled = replace(config, large_cluster=large)
    return complete((compile_entry(e, settled) for e in entries), settled)


def table(entries: Sequence[Entry], config: nftables.Config) -> str:
    ordered = sorted(entries, key=lambda entry: entry.key)
    return table_text(nftables.program([nftables.compile_entry(e, config) for e in ordered], config))


def maps(entries: Sequence[Entry], config: ebpf.Config) -> str:
    return document.complete([compile_for_sockets(e, config) for e in entries])


def virtual_servers(entries: Sequence[Entry], config: IPVSConfig) -> str:
    return servers.complete([compile_for_servers(e, config) for e in entries], config)


def _entries(found: Manifests, node: NodeContext, family: Family) -> list[Entry]:
    by_service: dict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for s in found.slices:
        by_service[s.metadata.namespace, s.metadata.labels.get(SERVICE_NAME_LABEL, "")].append(s)
    return [
        entry
        for service in found.services
        for entry in resolve(service, by_service[service.metadata.namespace, service.metadata.name], node, family)
    ]


def _first_family(tables: Mapping[Family, list[Entry]]) -> Family:
    return "IPv6" if tables["IPv6"] and not tables["IPv4"] else "IPv4"


def _doubts(found: Manifests, entries: Sequence[Entry], ranges: Sequence[str]) -> list[str]:
    """What is probably not meant."""
    doubts = []
    for service in found.services:
        meta, spec = service.metadata, service.spec
        if spec.type != "ExternalName" and not spec.cluster_ip:
            doubts.append(f"service {meta.namespace}/{meta.name}: has no spec.clusterIP yet, so no rules")
        elif not is_served(service):
            doubts.append(f"service {meta.namespace}/{meta.name}: headless, external or another proxy's, so no rules")
    networks = [ipaddress.ip_network(r) for r in ranges]
    for entry in entries:
        if networks and not any(ipaddress.ip_address(entry.cluster_ip) in n for n in networks):
            doubts.append(f"service {entry.name}: {entry.cluster_ip} is outside the Service range")
    return doubts


def _unserved(entries: Sequence[Entry], given: "Options", family: Family) -> Iterator[str]:
    """All modes but iptables write the addresses that serve node ports, IPVS each by itself."""
    ports = [e for e in entries if e.node_port]
    ranges = given.nodeport_addresses is not None and given.proxy_mode != "ipvs"
    known = ranges or _of_family(_node_ips(given.node_ip), family)
    if ports and not known and given.proxy_mode != "iptables":
        yield f"node port {ports[0].node_port} of {ports[0].name}: no address serves it here: give --node-ip"


def _config(given: "Options", family: Family) -> Config:
    cidr = _of_family(_ranges(given.cluster_cidr, "--cluster-cidr"), family)
    node_ip = _of_family(_node_ips(given.node_ip), family)
    return Config(
        family=family,
        node_ip=node_ip,
        detector=FromCIDR(cidr) if cidr else None,
        masquerade_bit=given.masquerade_bit,
        masquerade_all=given.masquerade_all,
        localhost_node_ports=given.localhost_nodeports,
        node_port_addresses=_node_port_addresses(given.nodeport_addresses, node_ip, family),
        nfacct=given.nfacct,
        drop_invalid=not given.tcp_be_liberal,
    )


def _table_config(given: "Options", family: Family, service_ranges: Sequence[str]) -> nftables.Config:
    """Without --nodeport-addresses the node's own address serves node ports."""
    plain = _config(given, family)
    own = (plain.node_ip,) if plain.node_ip else ()
    return nftables.Config(
        family=family,
        node_ip=plain.node_ip,
        detector=plain.detector,
        masquerade_bit=given.masquerade_bit,
        masquerade_all=given.masquerade_all,
        node_port_addresses=own if given.nodeport_addresses is None else plain.node_port_addresses,
        service_cidrs=tuple(r for r in service_ranges if (":" in r) == (family == "IPv6")),
        drop_invalid=plain.drop_invalid,
    )


def _socket_config(given: "Options", family: Family) -> ebpf.Config:
    """Without --nodeport-addresses the node's own address serves node ports."""
    node_ip = _of_family(_node_ips(given.node_ip), family)
    chosen = _node_port_addresses(given.nodeport_addresses, node_ip, family)
    own = (node_ip,) if node_ip else ()
    return ebpf.Config(family, own if chosen is None else chosen, given.localhost_nodeports)


def _server_config(given: "Options", family: Family) -> IPVSConfig:
    """Of the node's addresses only --node-ip is known here."""
    table = _config(given, family)
    own = (table.node_ip,) if table.node_ip else ()
    return IPVSConfig(
        family=family,
        node_ip=table.node_ip,
        detector=table.detector,
        masquerade_bit=given.masquerade_bit,
        masquerade_all=given.masquerade_all,
        scheduler=given.ipvs_scheduler,
        node_addresses=own if table.node_port_addresses is None else table.node_port_addresses,
        host_addresses=frozenset(own),
    )


def _node_port_addresses(text: str | None, node_ip: str, family: Family) -> tuple[str, ...] | None:
    """Those of the node's addresses, the loopback among them, that lie in the ranges given."""
    if text is None:
        return None
    networks = [ipaddress.ip_network(r) for r in _ranges(text, "--nodeport-addresses")]
    if any(n.prefixlen == 0 and n.version == (6 if family == "IPv6" else 4) for n in networks):
        return None
    known = (node_ip, "::1" if family == "IPv6" else "127.0.0.1")
    return tuple(a for a in known if a and any(ipaddress.ip_address(a) in n for n in networks))


def _of_family(texts: Sequence[str], family: Family) -> str:
    """The first of `family`, "" if there is none. An IPv6 address has a colon and no other has."""
    return next((text for text in texts if (":" in text) == (family == "IPv6")), "")


def _ranges(text: str, option: str) -> list[str]:
    found = []
    for part in filter(None, text.split(",")):
        canonical = canonical_range(part, "IPv4") or canonical_range(part, "IPv6")
        if not canonical:
            raise BadInput(f"{option}: {part!r} is no address range", hint=f"for example {option} 10.244.0.0/16")
        found.append(canonical)
    return found


def _node_ips(text: str) -> list[str]:
    found = []
    for part in filter(None, text.split(",")):
        canonical = canonical_address(part, "IPv4") or canonical_address(part, "IPv6")
        if not canonical:
            raise BadInput(f"--node-ip: {part!r} is no IP address", hint="for example --node-ip 192.168.50.11")
        found.append(canonical)
    return found


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if problem := (not equals and "is not KEY=VALUE") or qualified_name(key) or label_value(value):
            raise BadInput(f"--node-labels: {part!r}: {problem}", hint=f"for example --node-labels {ZONE_LABEL}=zone-1")
        labels[key] = value
    return labels
