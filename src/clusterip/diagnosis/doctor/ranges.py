"""Ranges of Services, pods and nodes that overlap; the address that pods ask for names. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias

from clusterip.diagnosis.doctor.hostfacts import node_addresses
from clusterip.diagnosis.doctor.known import Key, Known, Sourced
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.model import objects as o
from clusterip.rulesets import proxylog
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.manifests import Manifest

Network: TypeAlias = IPv4Network | IPv6Network
Kind: TypeAlias = Literal["pods", "Services", "node's pods"]

DNS_NAMES = ("kube-dns", "coredns", "rke2-coredns-rke2-coredns", "dns-default")
DNS_PORT = 53
_NAMESERVER = re.compile(r"\bnameserver ([\da-fA-F.:]+)")
_OTHERS = ("docker", "br-", "tun", "tap", "ppp", "wg", "virbr", "podman", "lxd", "vpn")
_FLAGS = {"cluster-cidr": "pods", "service-cluster-ip-range": "Services", "pod-network-cidr": "pods"}
_FLAG = re.compile(r"--(cluster-cidr|service-cluster-ip-range|pod-network-cidr)[= ]([\da-fA-F.:/,]+)")


@dataclass(frozen=True, slots=True)
class Range:
    kind: Kind
    network: Network
    whose: str  # "clusterCIDR 10.42.0.0/16"
    place: Evidence


def find(known: Known) -> Iterator[Finding]:
    ranges = list(dict.fromkeys(_ranges(known)))
    yield from _nodes_inside(known, ranges)
    yield from _overlapping(ranges)
    yield from _services_inside(known, ranges)
    yield from _routes_inside(known, ranges)
    yield from _dns(known)


# --- what ranges there are --------------------------------------------------------------------------------------------


def _ranges(known: Known) -> Iterator[Range]:
    for name, node in known.nodes.items():
        for text in node.spec.pod_cidrs or (node.spec.pod_cidr,):
            place = known.evidence("Node", Key("", name), f"node {name}: podCIDR {text}")
            yield from _range("node's pods", text, f"podCIDR {text} of node {name}", place)
    for document in known.documents:
        yield from _configured(document)
    for source in known.iptables:
        for text, place in _cluster_ranges(source.values.ruleset.tables.get("nat"), source):
            yield from _range("pods", text, f"clusterCIDR {text}", place)
    for log in known.logs:
        for event in proxylog.events(log.values):
            if isinstance(event, proxylog.Flag) and event.name in _FLAGS:
                place = log.at(event.line, f"--{event.name}={event.value}")
                yield from _range(_FLAGS[event.name], event.value, f"--{event.name} {event.value}", place)


def _range(kind: str, texts: str, whose: str, place: Evidence) -> Iterator[Range]:
    for text in filter(None, texts.split(",")):
        try:
            network = ip_network(text.strip(), strict=False)
        except ValueError:
            continue
        yield Range(
            "pods" if kind == "pods" else "Services" if kind == "Services" else "node's pods", network, whose, place
        )


def _configured(document: Sourced[Manifest]) -> Iterator[Range]:
    manifest = document.values
    given = manifest.document

    def said(kind: str, name: str, value: object) -> Iterator[Range]:
        texts = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")
        place = document.at(manifest.line, f"{manifest.kind}: {name}: {texts}")
        yield from _range(kind, texts, f"{name} {texts}", place)

    match manifest.kind:
        case "KubeProxyConfiguration":
            yield from said("pods", "clusterCIDR", given.get("clusterCIDR"))
        case "ClusterConfiguration":
            networking = given.get("networking")
            if isinstance(networking, dict):
                yield from said("pods", "podSubnet", networking.get("podSubnet"))
                yield from said("Services", "serviceSubnet", networking.get("serviceSubnet"))
        case "ServiceCIDR":
            spec = given.get("spec")
            yield from said(
                "Services", f"ServiceCIDR {manifest.name}", spec.get("cidrs") if isinstance(spec, dict) else None
            )
        case "Pod" if isinstance(manifest.value, o.Pod) and manifest.namespace == "kube-system":
            for container in manifest.value.spec.containers:
                for flag, value in _FLAG.findall(" ".join((*container.command, *container.args))):
                    yield from said(_FLAGS[flag], f"--{flag}", value)
        case "ConfigMap" if isinstance(given.get("data"), dict):
            for text in given["data"].values():
                for name, kind in (("clusterCIDR", "pods"), ("podSubnet", "pods"), ("serviceSubnet", "Services")):
                    for value in re.findall(rf"(?m)^\s*{name}:\s*\"?([\da-fA-F.:/,]+)", str(text)):
                        yield from said(kind, name, value)


def _cluster_ranges(nat: ipt.Table | None, source: Sourced[Saved]) -> Iterator[tuple[str, Evidence]]:
    """What kube-proxy takes for pods: "! -s 10.42.0.0/16 ... -j KUBE-MARK-MASQ". Each once."""
    seen: set[str] = set()
    for name, chain in nat.chains.items() if nat else ():
        for number, rule in enumerate(chain.rules):
            if not (isinstance(rule.target, ipt.Jump) and rule.target.chain == "KUBE-MARK-MASQ"):
                continue
            for match in rule.matches:
                if isinstance(match, ipt.Source) and match.negated and match.network not in seen:
                    seen.add(match.network)
                    yield match.network, source.rule("nat", name, number, line_text(name, rule))


# --- overlaps ---------------------------------------------------------------------------------------------------------


def _nodes_inside(known: Known, ranges: list[Range]) -> Iterator[Finding]:
    told: set[str] = set()
    for text, (owner, place) in node_addresses(known).items():
        try:
            address = ip_address(text)
        except ValueError:
            continue
        inside = [r for r in ranges if address.version == r.network.version and address in r.network]
        if not inside or text in told:
            continue
        told.add(text)
        r = inside[0]
        if r.kind == "Services":
            what = "Service addresses and the machines' own network are then the same to every rule and route."
        else:
            what = "Its traffic is taken for a pod's, so it is not masqueraded, and routes to pods hide the "
            what += "machines' own network."
        message = f"Address {text} of {owner} is inside {r.whose}. {what}"
        remedy = "choose a range that no machine is in: --cluster-cidr (or podSubnet) for pods, --service-cidr "
        remedy += "(serviceSubnet) for Services; an existing cluster must be made anew"
        yield Finding("cidr-overlap", "E", owner if owner != "this node" else f"address {text}", message,
                      (place, r.place), None, remedy)  # fmt: skip


def _overlapping(ranges: list[Range]) -> Iterator[Finding]:
    for i, one in enumerate(ranges):
        for other in ranges[i + 1 :]:
            if one.network.version != other.network.version or not one.network.overlaps(other.network):
                continue
            kinds = {one.kind, other.kind}
            two_nodes = kinds == {"node's pods"} and one.whose != other.whose
            if "Services" not in kinds and not two_nodes:
                continue  # the pods' range holds each node's
            if kinds == {"Services"}:
                continue
            message = f"{one.whose} and {other.whose} overlap: "
            message += (
                "two nodes give the same addresses to their pods."
                if two_nodes
                else ("a pod may be given the address of a Service, and is then reached by nobody.")
            )
            remedy = "choose ranges that do not overlap (podSubnet, serviceSubnet); an existing cluster must be made "
            remedy += "anew"
            if two_nodes:
                remedy = "delete one of the nodes and let it join again, so that it is given a range of its own"
            yield Finding("cidr-overlap", "E", f"{one.whose}", message, (one.place, other.place), None, remedy)


def _services_inside(known: Known, ranges: list[Range]) -> Iterator[Finding]:
    """Where the Service range itself was not given, its addresses tell."""
    for r in ranges:
        if r.kind == "Services":
            continue
        inside = [
            (key, address)
            for key, service in known.services.items()
            for address in service.spec.cluster_ips or (service.spec.cluster_ip,)
            if address not in ("", "None")
            if _is_in(address, r.network)
        ]
        if not inside:
            continue
        key, address = inside[0]
        more = f" (and {len(inside) - 1} more)" if len(inside) > 1 else ""
        message = f"ClusterIP {address} of {key}{more} is inside {r.whose}: a pod may be given the same address."
        evidence = (known.evidence("Service", key, f"clusterIP: {address}"), r.place)
        remedy = "choose ranges that do not overlap (podSubnet, serviceSubnet); an existing cluster must be made anew"
        yield Finding("cidr-overlap", "E", f"service {key}", message, evidence, None, remedy)
        return


def _is_in(text: str, network: Network) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return address.version == network.version and address in network


def _routes_inside(known: Known, ranges: list[Range]) -> Iterator[Finding]:
    """Networks of other programs (Docker, a VPN) that take addresses of pods or Services for theirs."""
    for source in known.routes:
        for route in source.values.routes:
            device = route.hops[0].device if route.hops else ""
            network = _network(route.destination)
            if network is None or not device.startswith(_OTHERS):
                continue
            for r in ranges:
                if network.version != r.network.version or not network.overlaps(r.network):
                    continue
                message = f"The route to {route.destination} by {device} overlaps {r.whose}: packets to these "
                message += f"addresses leave by {device}, whoever they are for."
                place = source.at(route.line, f"{route.destination} dev {device}")
                remedy = f"give {device} another network (Docker: bip and default-address-pools in daemon.json), or "
                remedy += "choose another range for the cluster"
                yield Finding(
                    "cidr-overlap", "E", f"route {route.destination}", message, (place, r.place), None, remedy
                )
                break


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


# --- the name server's address ----------------------------------------------------------------------------------------


def _dns(known: Known) -> Iterator[Finding]:
    holders = {a: key for key, s in known.services.items() for a in s.spec.cluster_ips or (s.spec.cluster_ip,)}
    for address, place in _asked(known):
        key = holders.get(address)
        if key is None or _answers(known.services[key]) or key.name in DNS_NAMES:
            continue
        message = f"Pods ask {address} for names, and that is the ClusterIP of {key}, which is no name server: no pod "
        message += "resolves a name. It was free when the Service was created, for the name server's was not there "
        message += "yet."
        evidence = (known.evidence("Service", key, f"clusterIP: {address}"), place)
        remedy = f"kubectl delete service {key.name} -n {key.namespace}; create kube-dns with clusterIP: {address}; "
        remedy += "then the other again"
        yield Finding("dns-ip-taken", "E", f"service {key}", message, evidence, None, remedy)
        return


def _answers(service: o.Service) -> bool:
    return any(port.port == DNS_PORT for port in service.spec.ports or ())


def _asked(known: Known) -> Iterator[tuple[str, Evidence]]:
    """Addresses that pods are told to ask."""
    for config in known.of_kind("KubeletConfiguration"):
        for address in config.values.document.get("clusterDNS") or ():
            yield str(address), config.at(config.values.line, f"KubeletConfiguration: clusterDNS: {address}")
    for document in known.of_kind("ConfigMap"):
        data = document.values.document.get("data")
        for text in data.values() if isinstance(data, dict) else ():
            for address in re.findall(r"clusterDNS:\s*\n?\s*-?\s*\"?([\da-fA-F.:]{7,})", str(text)):
                yield address, document.at(document.values.line, f"clusterDNS: {address}")
    for pod in known.pods:
        for address in pod.spec.dns_config.nameservers if pod.spec.dns_config else ():
            name = Key(pod.metadata.namespace, pod.metadata.name)
            yield address, known.evidence("Pod", name, f"pod {pod.metadata.name}: dnsConfig nameserver {address}")
    for problem in known.problems:  # a resolv.conf is no kind of dump
        if found := _NAMESERVER.search(problem.why):
            yield found[1], Evidence(found[0], problem.file, problem.line)
    # What installers give to the name server: the tenth address of the range that default/kubernetes has the first of.
    api = known.services.get(Key("default", "kubernetes"))
    if api and api.spec.cluster_ip.endswith(".1"):
        address = f"{api.spec.cluster_ip}0"
        text = f"default/kubernetes has {api.spec.cluster_ip}; kubeadm and most installers give {address} to the name "
        text += "server"
        yield address, known.evidence("Service", Key("default", "kubernetes"), text)
