"""`clusterip rules`: what the proxy would write for manifests."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click

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
from clusterip.services.table import Entry, Family

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")

HELP = """Print what the proxy of one node would write for the Services and EndpointSlices in FILE: one complete input
for iptables-restore (ip6tables-restore with --family IPv6), which gives from empty tables what kube-proxy gives; with
--proxy-mode nftables one table for `nft -f`; with --proxy-mode ebpf what the maps of its programs would hold, as JSON;
with --proxy-mode ipvs the inputs of ipset, iptables-restore, ipvsadm and ip, each under a line that names the program.
Needs no kernel and no root.

FILE may hold several documents, YAML or JSON, and lists as kubectl prints them; "-" is stdin. Objects of other kinds
are passed over, which is said on stderr.

\b
  clusterip rules -f app.yaml --node-name node-1 --node-ip 192.168.50.11 --cluster-cidr 10.244.0.0/16
  kubectl get services,endpointslices -A -o yaml | clusterip rules -f - --node-name node-1
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What is on the command line, as it was typed; lists are separated by commas."""

    files: tuple[str, ...]
    proxy_mode: str = "iptables"
    family: Family | None = None
    node_name: str = ""
    node_labels: str = ""
    node_ip: str = ""
    cluster_cidr: str = ""
    service_cidr: str = ""
    nodeport_addresses: str | None = None
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_nodeports: bool = True
    nfacct: bool = False
    tcp_be_liberal: bool = False
    ipvs_scheduler: str = "rr"


@click.command(help=HELP)
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="manifests; - is stdin")
@click.option(
    "--proxy-mode", type=click.Choice(["iptables", "ipvs", "nftables", "ebpf"]), default="iptables", show_default=True
)
@click.option("--family", type=click.Choice(FAMILIES), help="default: the one that the manifests have")
@click.option("--node-name", default="", help="the node whose rules these are; decides what is local")
@click.option("--node-ip", default="", metavar="IP[,IP]", help="its addresses, one a family")
@click.option("--node-labels", default="", metavar="K=V,...", help=f"its labels; {ZONE_LABEL} decides on hints")
@click.option("--cluster-cidr", default="", metavar="CIDR[,CIDR]", help="where pods are; without it none is recognised")
@click.option(
    "--service-cidr",
    default="",
    metavar="CIDR[,CIDR]",
    help="where Services are; one outside is named, and nftables mode drops what is for nobody there",
)
@click.option(
    "--nodeport-addresses",
    metavar="CIDR,...",
    help="addresses that serve node ports; default: all local, in nftables and ebpf mode --node-ip",
)
@click.option("--masquerade-bit", "masquerade_bit", type=click.IntRange(0, 31), default=14, show_default=True)
@click.option("--masquerade-all", is_flag=True, help="hide the source of everything sent to a ClusterIP")
@click.option("--localhost-nodeports/--no-localhost-nodeports", default=True, help="node ports on 127.0.0.1 (IPv4)")
@click.option("--nfacct", is_flag=True, help="count with nfacct, as on kernels that have it")
@click.option("--tcp-be-liberal", is_flag=True, help="as with net.netfilter.nf_conntrack_tcp_be_liberal=1")
@click.option("--ipvs-scheduler", default="rr", show_default=True, help="how IPVS shares connections out")
def command(**given: object) -> None:
    options = Options(**given)  # type: ignore[arg-type]  # click has made each of its type
    node = NodeContext(options.node_name, _labels(options.node_labels).get(ZONE_LABEL, ""))
    ranges = _ranges(options.service_cidr, "--service-cidr")
    found = manifests.read(options.files)
    tables = {f: _entries(found, node, f) for f in FAMILIES}
    family = options.family or _only_family(tables)
    doubts = (*_doubts(found, tables[family], ranges), *_unserved(tables[family], options, family))
    for sentence in (*found.passed_over, *doubts):
        click.echo(sentence, err=True)
    match options.proxy_mode:
        case "ebpf":
            text = maps(tables[family], _socket_config(options, family))
        case "ipvs":
            text = virtual_servers(tables[family], _server_config(options, family))
        case "nftables":
            text = table(tables[family], _table_config(options, family, ranges))
        case _:
            text = rules(tables[family], _config(options, family))
    click.echo(text, nl=False)


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


def _only_family(tables: dict[Family, list[Entry]]) -> Family:
    if tables["IPv4"] and tables["IPv6"]:
        click.echo("the Services have IPv4 and IPv6 addresses: IPv4 here, --family IPv6 for the other", err=True)
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


def _unserved(entries: Sequence[Entry], given: Options, family: Family) -> Iterator[str]:
    """All modes but iptables write the addresses that serve node ports, IPVS each by itself."""
    ports = [e for e in entries if e.node_port]
    ranges = given.nodeport_addresses is not None and given.proxy_mode != "ipvs"
    known = ranges or _of_family(_node_ips(given.node_ip), family)
    if ports and not known and given.proxy_mode != "iptables":
        yield f"node port {ports[0].node_port} of {ports[0].name}: no address serves it here: give --node-ip"


def _config(given: Options, family: Family) -> Config:
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


def _table_config(given: Options, family: Family, service_ranges: Sequence[str]) -> nftables.Config:
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


def _socket_config(given: Options, family: Family) -> ebpf.Config:
    """Without --nodeport-addresses the node's own address serves node ports."""
    node_ip = _of_family(_node_ips(given.node_ip), family)
    chosen = _node_port_addresses(given.nodeport_addresses, node_ip, family)
    own = (node_ip,) if node_ip else ()
    return ebpf.Config(family, own if chosen is None else chosen, given.localhost_nodeports)


def _server_config(given: Options, family: Family) -> IPVSConfig:
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
