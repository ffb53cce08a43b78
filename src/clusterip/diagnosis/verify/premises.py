"""What neither the API nor the rules say by themselves: whose rules they are, and what tells a pod's packets."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import frontends
from clusterip.diagnosis.node import CLUSTER_IP_SETS, surroundings
from clusterip.diagnosis.verify.nodeports import served_addresses
from clusterip.diagnosis.walk.surroundings import Surroundings, is_loopback, is_network
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.nft import values as n
from clusterip.services.resolve import ZONE_LABEL, NodeContext
from clusterip.services.route import Policy

_ENOUGH = 200  # chains of Services: the range that most of them take for pods' is the proxy's


@dataclass(frozen=True, slots=True)
class Premises:
    """Of one node. Empty fields: not told."""

    node: str = ""
    zone: str = ""
    addresses: tuple[str, ...] = ()  # of the node, that by which its proxy knows it first
    pod_networks: tuple[str, ...] = ()  # a packet is a pod's if its source is in them
    pod_interface: str = ""  # or if it came in by this, a name or a prefix and "+"
    masquerade_all: bool = False
    node_port_addresses: tuple[str, ...] | None = None  # those that serve node ports; None: all
    served_cgroup: str = ""  # of eBPF mode: whose sockets meet its programs
    excluded: tuple[str, ...] = ()  # of IPVS mode: virtual servers in these networks are somebody else's

    @property
    def context(self) -> NodeContext:
        return NodeContext(self.node, self.zone)

    @property
    def detects_pods(self) -> bool:
        return bool(self.pod_networks or self.pod_interface)

    def policy(self, *, ipv6: bool) -> Policy:
        own = [a for a in self.addresses if (":" in a) == ipv6]
        served = own if self.node_port_addresses is None else self.node_port_addresses
        return Policy(
            node_port_addresses=frozenset(a for a in served if (":" in a) == ipv6 and not is_loopback(a)),
            node_ip=own[0] if own else "",
            detects_pods=self.detects_pods,
            masquerade_all=self.masquerade_all,
        )


def premises(facts: Facts, told: Premises) -> Premises:
    """`told` filled in with what the facts show."""
    known = _surroundings(facts)
    node = told.node or facts.node
    if not node and len(facts.nodes) == 1:
        node = facts.nodes[0].metadata.name
    zone = told.zone or next(
        (x.metadata.labels.get(ZONE_LABEL, "") for x in facts.nodes if x.metadata.name == node), ""
    )
    internal = [a.address for x in facts.nodes if x.metadata.name == node for a in x.status.addresses]
    local = sorted(filter(_reachable, known.local - known.bound), key=lambda a: (a not in internal, a))
    addresses = told.addresses or tuple(local)
    served = told.node_port_addresses if told.node_port_addresses is not None else served_addresses(facts, addresses)
    found = replace(told, node=node, zone=zone, addresses=addresses, node_port_addresses=served)
    found = replace(found, excluded=told.excluded or _excluded(facts), served_cgroup=facts.served_cgroup)
    if told.detects_pods or told.masquerade_all:
        return found
    return _detector(facts, found)


def _excluded(facts: Facts) -> tuple[str, ...]:
    for given in reversed(facts.given):
        section = given.manifest.document.get("ipvs")
        if given.manifest.kind == "KubeProxyConfiguration" and isinstance(section, dict):
            return tuple(str(c) for c in section.get("excludeCIDRs") or () if is_network(str(c)))
    return ()


def _detector(facts: Facts, found: Premises) -> Premises:
    asked = Counter(islice(_masquerading(facts), _ENOUGH))
    if not asked:
        return found
    networks = [what for what, _ in asked.most_common() if "/" in what]
    families = {":" in network: network for network in reversed(networks)}
    if families:
        return replace(found, pod_networks=tuple(families[six] for six in sorted(families)))
    what = asked.most_common(1)[0][0]
    return replace(found, pod_interface=what) if what else replace(found, masquerade_all=True)


def _masquerading(facts: Facts) -> Iterator[str]:
    """What each Service asks of a packet before it masquerades it: "10.244.0.0/16", an interface, "": nothing."""
    for given in facts.iptables:
        nat = given.ruleset.tables.get("nat")
        for chain in nat.chains if nat else ():
            if nat and chain.startswith(("KUBE-SVC-", "KUBE-SVL-")):
                rules = nat.chains[chain].rules
                if rules and rules[0].target == v.Jump("KUBE-MARK-MASQ"):
                    yield _asked_of(rules[0].matches)
        for asking in given.ruleset.rules("nat", "KUBE-SERVICES"):
            if asking.target == v.Jump("KUBE-MARK-MASQ") and any(_asks_cluster_ips(m) for m in asking.matches):
                yield _asked_of(asking.matches)
    for rules_ in facts.nft:
        for table in rules_.ruleset:
            for rule in table.rules("services"):
                match rule.statements:
                    case (n.Match(), n.Match(n.Payload(_, "saddr"), "!=", n.Prefix(address, length)), n.Mangle()):
                        yield f"{address}/{length}"
                    case (n.Match(), n.Match(n.Meta("iifname"), "!=", n.Quoted(name)), n.Mangle()):
                        yield f"{name[:-1]}+" if name.endswith("*") else name
                    case (n.Match(), n.Mangle()):
                        yield ""


def _asks_cluster_ips(match: v.Match) -> bool:
    """Of IPVS mode; what asks for the source there is not about pods."""
    return isinstance(match, v.InSet) and match.name in CLUSTER_IP_SETS and match.directions == ("dst", "dst")


def _asked_of(matches: Iterable[v.Match]) -> str:
    for match in matches:
        match match:
            case v.Source(network, True):
                return network
            case v.InInterface(pattern, True):
                return pattern
    return ""


def sentences(found: Premises, told: Premises) -> tuple[str, ...]:
    """What was taken as given. `told`: what somebody said, the rest was found."""
    own = ", ".join(found.addresses[:6]) or "no address of it is known"
    whose = f"node {found.node}" if found.node else "the node is not named: no endpoint counts as local"
    zone = f" in zone {found.zone}" if found.zone else ""
    if found.pod_networks:
        pods = f"a pod's packets are those from {', '.join(found.pod_networks)}"
    elif found.pod_interface:
        pods = f"a pod's packets are those that come in by {found.pod_interface}"
    else:
        pods = "nothing tells a pod's packets from others"
    guessed = "" if told.detects_pods or told.masquerade_all or not found.detects_pods else ", as the rules have it"
    everywhere = found.node_port_addresses is None
    served = "all its addresses" if everywhere else ", ".join(found.node_port_addresses or ()) or "no address"
    all_ = ("everything sent to a ClusterIP is masqueraded",) if found.masquerade_all else ()
    sockets = (f"sockets are those of processes in {found.served_cgroup}",) if found.served_cgroup else ()
    return (f"{whose}{zone}: {own}", pods + guessed, f"node ports answer on {served}", *all_, *sockets)


def _reachable(address: str) -> bool:
    """From elsewhere: neither the loopback's nor of one link alone."""
    return address != "" and not is_loopback(address) and not address.startswith("fe80:")


def _surroundings(facts: Facts) -> Surroundings:
    return surroundings(facts, frontends(facts))


def settled(facts: Facts, found: Premises) -> Surroundings:
    """What surrounds the rules, with every address of the node taken to be known."""
    known = _surroundings(facts)
    return Surroundings(
        local=frozenset(found.addresses) | known.bound,
        bound=known.bound,
        complete=True,
        pod_ranges=found.pod_networks,
        routes=known.routes,
        primary=known.primary,
    )
