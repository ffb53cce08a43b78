"""Of IPVS mode: schedulers, affinity, Local policies, and what an address on kube-ipvs0 does besides. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clusterip.diagnosis.doctor.backends import service_object
from clusterip.diagnosis.doctor.hostfacts import setting
from clusterip.diagnosis.doctor.ipvs_addresses import DEVICE, FILTER
from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.doctor.policies import nodes_of
from clusterip.diagnosis.findings import Evidence, Finding, Level
from clusterip.diagnosis.packet import socket
from clusterip.model import objects as o
from clusterip.model.status import Object
from clusterip.rulesets import ipvs
from clusterip.services.resolve import is_served

NAMED = 12  # pieces of evidence
_FEWEST = "the backend with the fewest connections no longer gets the next one, so long ones may gather on a few"
_STAYS = "a client is no longer sent to one backend by its address; who needs that sets sessionAffinity: ClientIP"
_LOST = {
    "wrr": "weights no longer count",
    "lc": _FEWEST,
    "wlc": f"{_FEWEST}, and weights no longer count",
    "sed": _FEWEST,
    "nq": _FEWEST,
    "sh": _STAYS,
    "mh": _STAYS,
    "dh": "a Service's address is no longer bound to one backend",
    "lblc": "a Service's address is no longer bound to one backend",
    "lblcr": "a Service's address is no longer bound to a few backends",
    "fo": "the heaviest backend no longer gets everything",
    "ovf": "the heaviest backend is no longer filled up first",
}


class Served(NamedTuple):
    """A virtual server of a Service."""

    server: ipvs.VirtualService
    service: Key | None  # None: no Services were given
    place: Evidence


def find(known: Known) -> Iterator[Finding]:
    ours, others = served(known)
    yield from _schedulers(ours)
    yield from _weights(ours)
    yield from _affinity(ours)
    yield from _policies(known)
    yield from _others(known, others)
    yield from _addresses(known)
    yield from _configured(known)
    yield from _node_source(known)


def served(known: Known) -> tuple[list[Served], list[Evidence]]:
    """The virtual servers of Services, and where those stand that no Service explains."""
    owners = _owners(known)
    ours, others = list[Served](), list[Evidence]()
    for source in known.ipvs:
        for server in source.values.services:
            owner = owners.get((server.frontend.address, server.frontend.port))
            place = source.at(server.line, f"{_told(server)}{f' {owner}' if owner else ''}")
            if owner or not known.services:
                ours.append(Served(server, owner, place))
            else:
                others.append(place)
    return ours, others


def section(known: Known) -> tuple[Object, Evidence]:
    """`ipvs` of the proxy's configuration, and where it stands; {} if none was given."""
    for config in known.of_kind("KubeProxyConfiguration"):
        found = config.values.document.get("ipvs")
        if isinstance(found, dict):
            return found, config.at(config.values.line, "KubeProxyConfiguration")
    return {}, Evidence("")


# --- who gets the next connection -------------------------------------------------------------------------------------


def _schedulers(ours: Sequence[Served]) -> Iterator[Finding]:
    """Every backend is as likely as the next, and each connection is drawn by itself."""
    using: defaultdict[str, list[Evidence]] = defaultdict(list)
    for one in ours:
        if len(one.server.servers) > 1:
            using[one.server.scheduler or "wlc"].append(one.place)
    for scheduler, evidence in sorted(using.items()):
        lost = _LOST.get(scheduler)
        message = (
            f"{_count(len(evidence), 'virtual server')} with several backends {'uses' if len(evidence) == 1 else 'use'}"
        )
        message += f" {scheduler}. nftables mode draws a backend for each connection, each as likely as the next: "
        message += lost or "as even in the long run as taking turns, not from one connection to the next"
        level: Level = "W" if lost else "I"
        remedy = "set sessionAffinity: ClientIP on the Services whose clients must stay" if lost == _STAYS else ""
        object_ = f"scheduler {scheduler}"
        yield Finding("move-scheduler", level, object_, f"{message}.", tuple(evidence[:NAMED]), None, remedy)


def _weights(ours: Sequence[Served]) -> Iterator[Finding]:
    """The proxy writes 1, or 0 for a backend that is going: another weight is somebody's own."""
    for server, owner, place in ours:
        weights = {socket(s.address, s.port): s.weight for s in server.servers if s.weight}
        if len(set(weights.values())) > 1:
            shown = ", ".join(f"{backend} {weight}" for backend, weight in weights.items())
            message = f"Its backends have weights of their own ({shown}), which no Service can say: nftables mode "
            message += "gives each the same share."
            object_ = service_object(owner) if owner else f"virtual server {_told(server)}"
            yield Finding("move-weights", "W", object_, message, (place,))


def _affinity(ours: Sequence[Served]) -> Iterator[Finding]:
    found: defaultdict[Key, list[Evidence]] = defaultdict(list)
    for server, owner, place in ours:
        if server.persistent and owner:
            found[owner].append(Evidence(f"{_told(server)} persistent {server.persistent}", place.file, place.line))
    for key, evidence in sorted(found.items()):
        message = f"Clients are remembered at each of {_count(len(evidence), 'virtual server')} by itself today; "
        message += (
            "nftables mode remembers them for each port of the Service, by whichever of its addresses they come. "
        )
        message += "At the move all are forgotten once: a client's next connection may go to another backend."
        yield Finding("move-affinity", "I", service_object(key), message, tuple(evidence[:NAMED]))


def _policies(known: Known) -> Iterator[Finding]:
    """IPVS falls back to the cluster's backends where a Local policy leaves none."""
    for key, service in known.services.items():
        spec = service.spec
        ready = {
            e.node_name or ""
            for s in known.slices_of.get(key, ())
            for e in s.endpoints or ()
            if e.conditions.ready is not False and e.addresses
        }
        without = sorted(({known.node} if known.node else nodes_of(known)) - ready)
        if not is_served(service) or not ready or not without:
            continue
        external = spec.external_traffic_policy == "Local" and (spec.type != "ClusterIP" or spec.external_ips)
        for policy, local in (("externalTrafficPolicy", external), ("internalTrafficPolicy", _internal(service))):
            if not local:
                continue
            whose = "from outside" if policy == "externalTrafficPolicy" else "for the ClusterIP"
            message = f"{policy}: Local, and {', '.join(without[:NAMED])} {'has' if len(without) == 1 else 'have'} no "
            message += f"backend. IPVS mode sends connections {whose} to other nodes' backends there all the same; "
            message += "nftables mode drops them."
            field = "externalTrafficPolicy" if external and policy.startswith("ext") else "internalTrafficPolicy"
            remedy = f"a backend on each node (a DaemonSet), or kubectl patch service {key.name} -n {key.namespace} -p "
            remedy += f'\'{{"spec":{{"{field}":"Cluster"}}}}\''
            evidence = (known.evidence("Service", key, f"{policy}: Local"),)
            yield Finding("move-local-policy", "W", service_object(key), message, evidence, None, remedy)


def _internal(service: o.Service) -> bool:
    return service.spec.internal_traffic_policy == "Local"


# --- what is not a Service's ------------------------------------------------------------------------------------------


def _others(known: Known, others: Sequence[Evidence]) -> Iterator[Finding]:
    """Virtual servers that no Service explains."""
    given, place = section(known)
    cidrs = [str(c) for c in given.get("excludeCIDRs") or ()]
    if not cidrs and not others:
        return
    message = f"{_count(len(others), 'virtual server')} of no Service. " if others else ""
    message += f"excludeCIDRs keeps the proxy's hands off {', '.join(cidrs)}. " if cidrs else ""
    message += "nftables mode knows no virtual servers: such go on for as long as whoever made them keeps them and the "
    message += "kernel's module ip_vs; a clean-up of IPVS mode by kube-proxy takes them away as well."
    excluded = (Evidence(f"ipvs.excludeCIDRs: {', '.join(cidrs)}", place.file, place.line),) if cidrs else ()
    remedy = "ipvsadm -Sn > others.txt   # on each node, before the move"
    yield Finding("move-others-servers", "W", "virtual servers", message, (*others[:NAMED], *excluded), None, remedy)


def _addresses(known: Known) -> Iterator[Finding]:
    for source in known.interfaces:
        for interface in source.values.interfaces:
            if interface.name != DEVICE or not interface.addresses:
                continue
            first = interface.addresses[0]
            place = source.at(interface.line, f"{DEVICE} has {len(interface.addresses)} addresses")
            message = f"A ping of a Service's address is answered today, as {DEVICE} carries it "
            message += f"({first.address} and {len(interface.addresses) - 1} more). In nftables mode no interface has "
            message += "it: a ping gets no answer, or a refusal, and proves nothing either way."
            remedy = f"nc -vz {first.address} PORT   # let monitoring ask for the Service's port"
            yield Finding("move-ping", "I", f"interface {DEVICE}", message, (place,), None, remedy)
            if reachable := _open(known):
                message = f"There is no chain {FILTER} that matters: what listens on all addresses of the node (ssh, "
                message += "the kubelet) is reached at every Service's address today. nftables mode refuses it."
                yield Finding("move-node-daemons", "W", f"interface {DEVICE}", message, (reachable, place))


def _open(known: Known) -> Evidence | None:
    """Where the filter table is said to have no such chain."""
    tables = [(s, s.values.ruleset.tables["filter"]) for s in known.iptables if "filter" in s.values.ruleset.tables]
    if not tables or any(table.rules(FILTER) for _, table in tables):
        return None
    return Evidence(f"no rules in chain {FILTER}", tables[0][0].file)


def _configured(known: Known) -> Iterator[Finding]:
    given, place = section(known)
    ignore, arp = setting(known, "net.ipv4.conf.all.arp_ignore")
    if given.get("strictARP"):
        message = "strictARP sets net.ipv4.conf.all.arp_ignore and arp_announce, so that the node does not answer for "
        message += f"addresses on {DEVICE}. Without that device nothing needs it; nobody puts the settings back."
        remedy = "sysctl -w net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0   # or restart the node"
        shown = (Evidence("ipvs.strictARP: true", place.file, place.line), *(arp if ignore else ()))
        yield Finding("move-strict-arp", "I", "setting net.ipv4.conf.all.arp_ignore", message, shown, None, remedy)
    waits = {k: given.get(k) for k in ("tcpTimeout", "tcpFinTimeout", "udpTimeout")}
    chosen = {name: value for name, value in waits.items() if value and value not in ("0s", 0)}
    if chosen:
        shown_waits = ", ".join(f"{name} {value}" for name, value in chosen.items())
        message = f"IPVS forgets idle connections after times of its own ({shown_waits}); in nftables mode those of "
        message += "connection tracking hold."
        names = {
            "tcpTimeout": "nf_conntrack_tcp_timeout_established",
            "tcpFinTimeout": "nf_conntrack_tcp_timeout_fin_wait",
            "udpTimeout": "nf_conntrack_udp_timeout",
        }
        said = [e for name in chosen for e in setting(known, f"net.netfilter.{names[name]}")[1]]
        remedy = "set conntrack.tcpEstablishedTimeout and conntrack.udpTimeout in the proxy's configuration"
        evidence = (Evidence(f"ipvs: {shown_waits}", place.file, place.line), *said)
        yield Finding("move-timeouts", "W", "connection timeouts", message, evidence, None, remedy)
    ours = [
        source.at(source.values.lines.get(name, 0), f"{name} = {value}")
        for source in known.settings
        for name, value in source.values.values.items()
        if name.startswith("net.ipv4.vs.")
    ]
    if ours:
        message = f"{len(ours)} settings net.ipv4.vs.* mean nothing to nftables mode; what tunes them can go."
        yield Finding("move-settings", "I", "settings net.ipv4.vs.*", message, tuple(ours[:NAMED]))


def _node_source(known: Known) -> Iterator[Finding]:
    """Without a pod range the sets are asked whether the source is the Service's own address."""
    for source in known.iptables:
        for number, rule in enumerate(source.values.ruleset.rules("nat", "KUBE-SERVICES")):
            for match in rule.matches:
                if getattr(match, "directions", ()) == ("src", "dst") and "CLUSTER-IP" in getattr(match, "name", ""):
                    place = source.rule("nat", "KUBE-SERVICES", number, f"{match}")
                    message = "A process of the node speaks to a Service with the Service's own address as its source, "
                    message += (
                        "which these rules masquerade. In nftables mode its source is the node's address from the "
                    )
                    message += "start. The proxy knows no pod range (clusterCIDR), so nothing else is masqueraded in "
                    message += "either mode."
                    yield Finding("move-node-source", "I", "connections of the node", message, (place,))
                    return


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _told(server: ipvs.VirtualService) -> str:
    protocol, address, port = server.frontend
    return f"{protocol} {socket(address, port)} {server.scheduler}".rstrip()


def _owners(known: Known) -> dict[tuple[str, int], Key]:
    """By address and port; of a node port by each address that a virtual server has it on."""
    found: dict[tuple[str, int], Key] = {}
    by_node_port: dict[int, Key] = {}
    for key, service in known.services.items():
        ingress = (i.ip for i in service.status.load_balancer.ingress or ())
        for port in service.spec.ports or ():
            for address in (*service.spec.cluster_ips, service.spec.cluster_ip, *service.spec.external_ips, *ingress):
                found[address, port.port] = key
            if port.node_port:
                by_node_port[port.node_port] = key
    for source in known.ipvs:
        for server in source.values.services:
            _, address, number = server.frontend
            if number in by_node_port:
                found.setdefault((address, number), by_node_port[number])
    return found
