"""One entry of the service table -> its rules. Pure; equal entries give equal text.

Rules are written to the letter as `iptables-save` prints them, so that what is read back is what was loaded.
"""

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from clusterip.dataplane.iptables import names
from clusterip.dataplane.iptables.config import Config, FromCIDR, FromInterface
from clusterip.services.table import Backend, Entry, EntryKey

NFACCT = "-m nfacct --nfacct-name  "  # with the two blanks of `iptables-save`


class Line(NamedTuple):
    """One rule in a chain that all Services share."""

    chain: str
    spec: str  # what follows "-A <chain> "


class OwnChain(NamedTuple):
    """A chain of the nat table that belongs to one Service port."""

    name: str
    rules: str  # "-A <name> ...\\n" for each rule, in order


@dataclass(frozen=True, slots=True)
class Piece:
    """All that one entry puts into the kernel. Order matters inside an own chain and among `nat` lines of one chain."""

    key: EntryKey
    chains: tuple[OwnChain, ...] = ()  # nat; each refers only to ones before it
    nat: tuple[Line, ...] = ()  # KUBE-SERVICES, KUBE-NODEPORTS
    filter: tuple[Line, ...] = ()  # KUBE-SERVICES, KUBE-EXTERNAL-SERVICES, KUBE-NODEPORTS, KUBE-PROXY-FIREWALL
    nat_rules: int = 0  # rules in `chains` and `nat`
    endpoints: int = 0  # counts towards large-cluster mode

    @property
    def filter_rules(self) -> int:
        return len(self.filter)


class _Writer:
    """The parts of one entry's rules that repeat, and which chains it has."""

    __slots__ = ("config", "ends", "entry", "ext", "fw", "internal", "label", "proto", "svc", "svl")

    def __init__(self, entry: Entry, config: Config) -> None:
        digest = names.service_digest(entry.name, entry.protocol)
        self.entry = entry
        self.config = config
        self.label = str(entry.name)
        self.proto = entry.protocol.lower()
        self.svc = f"KUBE-SVC-{digest}" if entry.cluster and entry.uses_cluster else ""
        self.svl = f"KUBE-SVL-{digest}" if entry.local and entry.uses_local else ""
        self.ext = f"KUBE-EXT-{digest}" if entry.has_backends and entry.external else ""
        restricted = entry.has_backends and entry.load_balancer_ips and entry.source_ranges
        self.fw = f"KUBE-FW-{digest}" if restricted else ""
        self.internal = self.svl if entry.internal_local else self.svc
        used = {*(entry.cluster if self.svc else ()), *(entry.local if self.svl else ())}
        self.ends = {b: names.endpoint_chain(entry.name, entry.protocol, b) for b in sorted(used, key=str)}

    @property
    def external(self) -> str:
        return self.svl if self.entry.external_local else self.svc

    def to(self, address: str, comment: str, port: int, *, source: str = "", interface: str = "") -> str:
        bits = self.config.host_bits
        where = f"{source}-d {address}/{bits} {interface}-p {self.proto}"
        return f'{where} -m comment --comment "{comment}" -m {self.proto} --dport {port}'

    def comment(self, text: str) -> str:
        """Of the rules of endpoints: there are many, so a large cluster goes without."""
        return "" if self.config.large_cluster else f'-m comment --comment "{text}" '


def compile_entry(entry: Entry, config: Config) -> Piece:
    """The rules of one entry. `entry.family` must be `config.family`."""
    writer = _Writer(entry, config)
    chains = (
        *_endpoint_chains(writer),
        *_policy_chains(writer),
        *_external_chain(writer),
        *_firewall_chain(writer),
    )
    nat = (*_service_lines(writer), *_node_port_lines(writer))
    return Piece(
        key=entry.key,
        chains=chains,
        nat=nat,
        filter=tuple(_filter_lines(writer)),
        nat_rules=len(nat) + sum(c.rules.count("\n") for c in chains),
        endpoints=entry.known,
    )


def _endpoint_chains(w: _Writer) -> list[OwnChain]:
    entry, proto = w.entry, w.proto
    comment = w.comment(w.label)
    chains = []
    for backend, name in w.ends.items():
        remember = f"{_recent(w, name, '--set')} " if entry.affinity_seconds else ""
        chains.append(
            OwnChain(
                name,
                f"-A {name} -s {backend.address}/{w.config.host_bits} {comment}-j {names.MARK_MASQ}\n"
                f"-A {name} -p {proto} {comment}{remember}-m {proto} -j DNAT --to-destination {backend}\n",
            )
        )
    return chains


def _recent(w: _Writer, chain: str, action: str) -> str:
    mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" if w.config.ipv6 else "255.255.255.255"
    return f"-m recent {action} --name {chain} --mask {mask} --rsource"


def _policy_chains(w: _Writer) -> list[OwnChain]:
    chains = []
    for name, backends in ((w.svc, w.entry.cluster), (w.svl, w.entry.local)):
        if name:
            masquerade = _masquerade_rule(w, name) if name == w.internal else ""
            chains.append(OwnChain(name, masquerade + _balance(w, name, backends)))
    return chains


def _masquerade_rule(w: _Writer, chain: str) -> str:
    """A packet for the ClusterIP that is no pod's must come back through this node."""
    source = interface = ""
    if not w.config.masquerade_all:
        match w.config.detector:
            case None:
                return ""
            case FromCIDR(cidr):
                source = f"! -s {cidr} "
            case FromInterface(pattern):
                interface = f"! -i {pattern} "
    entry = w.entry
    spec = w.to(entry.cluster_ip, f"{w.label} cluster IP", entry.port, source=source, interface=interface)
    return f"-A {chain} {spec} -j {names.MARK_MASQ}\n"


def _balance(w: _Writer, chain: str, backends: tuple[Backend, ...]) -> str:
    """Rule i is reached only if the i before it did not match, so it matches one time in n - i; the last always."""
    entry = w.entry
    ends = [(b, w.ends[b]) for b in backends]
    rules = []
    if entry.affinity_seconds:
        check = f"--rcheck --seconds {entry.affinity_seconds} --reap"
        for backend, end in ends:
            comment = w.comment(f"{w.label} -> {backend}")
            rules.append(f"-A {chain} {comment}{_recent(w, end, check)} -j {end}\n")
    for i, (backend, end) in enumerate(ends):
        left = len(ends) - i
        chance = f"-m statistic --mode random --probability {_chance(left)} " if left > 1 else ""
        comment = w.comment(f"{w.label} -> {backend}")
        rules.append(f"-A {chain} {comment}{chance}-j {end}\n")
    return "".join(rules)


@lru_cache(maxsize=1 << 12)
def _chance(left: int) -> str:
    """One in `left`, as the kernel keeps it and gives it back: in units of 2**-31, from the ten digits that kube-proxy
    writes."""
    return f"{round(float(f'{1 / left:.10f}') * 2**31) / 2**31:.11f}"


def _external_chain(w: _Writer) -> list[OwnChain]:
    if not w.ext:
        return []
    rules = []
    if not w.entry.external_local:
        masquerade = f"masquerade traffic for {w.label} external destinations"
        rules.append(f'-m comment --comment "{masquerade}" -j {names.MARK_MASQ}')
    else:
        # Packets that began on this node never saw a load balancer that knows the Local policy: any backend will do.
        pods = f'-m comment --comment "pod traffic for {w.label} external destinations" -j {w.svc}'
        match w.config.detector:
            case FromCIDR(cidr):
                rules.append(f"-s {cidr} {pods}")
            case FromInterface(pattern):
                rules.append(f"-i {pattern} {pods}")
        own = "-m addrtype --src-type LOCAL"
        masquerade = f"masquerade LOCAL traffic for {w.label} external destinations"
        rules.append(f'-m comment --comment "{masquerade}" {own} -j {names.MARK_MASQ}')
        rules.append(f'-m comment --comment "route LOCAL traffic for {w.label} external destinations" {own} -j {w.svc}')
    if w.external:
        rules.append(f"-j {w.external}")
    return [OwnChain(w.ext, "".join(f"-A {w.ext} {rule}\n" for rule in rules))]


def _firewall_chain(w: _Writer) -> list[OwnChain]:
    if not w.fw:
        return []
    ranges = w.entry.source_ranges
    sources = list(ranges)
    if w.config.node_ip and any(_contains(r, w.config.node_ip) for r in ranges):
        # Where the load balancer's address is also the node's own, the node's packets carry it as their source.
        sources += [f"{address}/{w.config.host_bits}" for address in w.entry.load_balancer_ips]
    comment = f'-m comment --comment "{w.label} loadbalancer IP"'
    rules = [f"-A {w.fw} -s {source} {comment} -j {w.ext}\n" for source in sources]
    rest = f"other traffic to {w.label} will be dropped by {names.PROXY_FIREWALL}"
    return [OwnChain(w.fw, "".join(rules) + f'-A {w.fw} -m comment --comment "{rest}"\n')]


def _contains(cidr: str, address: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(cidr)


def _service_lines(w: _Writer) -> list[Line]:
    entry, label = w.entry, w.label
    lines = []
    if w.internal:
        lines.append(f"{w.to(entry.cluster_ip, f'{label} cluster IP', entry.port)} -j {w.internal}")
    if w.ext:
        for address in entry.external_ips:
            lines.append(f"{w.to(address, f'{label} external IP', entry.port)} -j {w.ext}")
        for address in entry.load_balancer_ips:
            lines.append(f"{w.to(address, f'{label} loadbalancer IP', entry.port)} -j {w.fw or w.ext}")
    return [Line(names.SERVICES, spec) for spec in lines]


def _node_port_lines(w: _Writer) -> list[Line]:
    if not (w.entry.node_port and w.ext):
        return []
    match_port = f'-p {w.proto} -m comment --comment "{w.label}" -m {w.proto} --dport {w.entry.node_port}'
    lines = []
    if w.config.nfacct and w.config.localhost:
        counted = f"{NFACCT}localhost_nps_accepted_pkts"
        lines.append(Line(names.NODE_PORTS, f"-d 127.0.0.0/8 {match_port} {counted} -j {w.ext}"))
    lines.append(Line(names.NODE_PORTS, f"{match_port} -j {w.ext}"))
    return lines


def _filter_lines(w: _Writer) -> list[Line]:
    """What becomes of packets that no rule of the nat table has sent to a backend."""
    entry, label = w.entry, w.label
    lines = []
    if entry.has_backends:
        comment, verdict = f"{label} has no local endpoints", "DROP"
    else:
        icmp = "icmp6" if w.config.ipv6 else "icmp"
        comment, verdict = f"{label} has no endpoints", f"REJECT --reject-with {icmp}-port-unreachable"
    if not w.internal:
        lines.append(Line(names.SERVICES, f"{w.to(entry.cluster_ip, comment, entry.port)} -j {verdict}"))
    if not w.external:
        for address in (*entry.external_ips, *entry.load_balancer_ips):
            lines.append(Line(names.EXTERNAL_SERVICES, f"{w.to(address, comment, entry.port)} -j {verdict}"))
        if entry.node_port:
            on_node = f'-p {w.proto} -m comment --comment "{comment}" -m addrtype --dst-type LOCAL'
            port = f"-m {w.proto} --dport {entry.node_port}"
            lines.append(Line(names.EXTERNAL_SERVICES, f"{on_node} {port} -j {verdict}"))
    if w.fw:
        for address in entry.load_balancer_ips:
            comment = f"{label} traffic not accepted by {w.fw}"
            lines.append(Line(names.PROXY_FIREWALL, f"{w.to(address, comment, entry.port)} -j DROP"))
    if entry.health_check_node_port:
        check = f'-p tcp -m comment --comment "{label} health check node port"'
        lines.append(Line(names.NODE_PORTS, f"{check} -m tcp --dport {entry.health_check_node_port} -j ACCEPT"))
    return lines
