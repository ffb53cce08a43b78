"""The facts about a node -> what surrounds its rules: its addresses, routes and settings."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import Frontend
from clusterip.diagnosis.question import Client, addresses
from clusterip.diagnosis.walk.surroundings import Route, Surroundings, by_length
from clusterip.rulesets import host
from clusterip.rulesets.ipset import IPSet
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.nft import values as n

CLUSTER_IP_SETS = ("KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP")
IPVS_DEVICE = "kube-ipvs0"
_IPVS_SETS = frozenset(
    f"KUBE-{six}{name}" for name in ("CLUSTER-IP", "LOAD-BALANCER", "EXTERNAL-IP", "IPVS-IPS") for six in ("", "6-")
)
_BRIDGES_ASK = "net.bridge.bridge-nf-call-iptables"
_TABLES = frozenset({"main", "default"})
_ENOUGH = 20  # chains of Services to look for the range that their proxy takes for pods'


def surroundings(facts: Facts, frontends: Iterable[Frontend]) -> Surroundings:
    own = _interface_addresses(facts, besides=IPVS_DEVICE)
    bound = _interface_addresses(facts) - own
    local = {*own, *bound, *_told_by_rules(facts), *_told_by_api(facts), *_local_routes(facts)}
    served_by_ipvs = {a for name, found in (facts.ipsets or {}).items() if name in _IPVS_SETS for a in _firsts(found)}
    foreign = {a for p in facts.pods if not p.spec.host_network for a in addresses(p)}
    if facts.ipvs is None and not served_by_ipvs:
        foreign |= {f.address for f in frontends if f.kind == "clusterIP"}
    elif facts.interfaces is None:
        # The proxy puts every virtual address on a device of the node's, or none of them would be served.
        services = facts.ipvs.services if facts.ipvs else ()
        bound = served_by_ipvs - local
        local |= served_by_ipvs | {s.frontend.address for s in services if s.frontend.address}
    return Surroundings(
        local=frozenset(local),
        bound=frozenset(bound - _told_by_api(facts)),
        complete=facts.interfaces is not None,
        foreign=foreign.__contains__,
        silent_bridges=_silent_bridges(facts),
        pod_ranges=pod_ranges(facts),
        routes=by_length(_routes(facts)),
        primary=_primary(facts),
    )


def pod_ranges(facts: Facts) -> tuple[str, ...]:
    found = {r for node in facts.nodes for r in (node.spec.pod_cidr, *node.spec.pod_cidrs) if r}
    for given in facts.iptables:
        nat = given.ruleset.tables.get("nat")
        own = (c for c in nat.chains if c.startswith(("KUBE-SVC-", "KUBE-SVL-"))) if nat else iter(())
        for chain in islice(own, _ENOUGH):
            for rule in given.ruleset.rules("nat", chain)[:1]:
                found |= {m.network for m in rule.matches if isinstance(m, v.Source) and m.negated}
    for rules in facts.nft:
        for table in rules.ruleset:
            for statement in (s for r in table.rules("services") for s in r.statements):
                match statement:
                    case n.Match(n.Payload(_, "saddr"), "!=", n.Prefix(address, length)):
                        found.add(f"{address}/{length}")
    return tuple(sorted(found))


def asked_by(known: Surroundings, client: Client) -> Surroundings:
    """With what the question itself says: a pod's address is no node's."""
    if client.kind == "node":
        return replace(known, local=known.local | {client.address})
    return replace(known, foreign=lambda address: address == client.address or known.foreign(address))


def _firsts(found: IPSet) -> list[str]:
    return [m.parts[0] for m in found.members if m.parts and "/" not in m.parts[0]]


def _interface_addresses(facts: Facts, besides: str = "") -> set[str]:
    """`besides`: an interface that does not count."""
    interfaces = facts.interfaces.interfaces if facts.interfaces else ()
    return {a.address for i in interfaces if i.name != besides for a in i.addresses}


def _told_by_rules(facts: Facts) -> set[str]:
    """kube-proxy names the node's addresses that serve node ports."""
    return {
        element.key.text
        for given in facts.nft
        for table in given.ruleset
        if "nodeport-ips" in table.sets
        for element in table.sets["nodeport-ips"].elements
        if isinstance(element.key, n.Address)
    }


def _told_by_api(facts: Facts) -> set[str]:
    return {
        a.address
        for node in facts.nodes
        if node.metadata.name == facts.node
        for a in node.status.addresses
        if a.type.endswith("IP")
    }


def _local_routes(facts: Facts) -> set[str]:
    """Of single addresses: "local 10.0.0.1 dev eth0 table local"."""
    found = [r.destination.partition("/") for r in (facts.routes.routes if facts.routes else ()) if r.type == "local"]
    return {address for address, _, length in found if length in ("", "32", "128")}


def _routes(facts: Facts) -> list[Route]:
    found = []
    for route in facts.routes.routes if facts.routes else ():
        if route.table not in _TABLES or route.type in ("local", "broadcast", "multicast", "anycast"):
            continue
        hop = route.hops[0] if route.hops else host.NextHop()
        network = route.destination
        if network == "default":
            network = "::/0" if ":" in hop.gateway or ":" in route.source else "0.0.0.0/0"
        found.append(Route(network, hop.device, hop.gateway, route.source, route.type))
    return sorted(found, key=lambda r: r.network)


def _silent_bridges(facts: Facts) -> frozenset[str]:
    """All, where the kernel is told so or has no module that would ask."""
    if facts.settings.number(_BRIDGES_ASK) != 0:
        return frozenset()
    interfaces = facts.interfaces.interfaces if facts.interfaces else ()
    return frozenset(i.name for i in interfaces if i.kind == "bridge") | {i.master for i in interfaces if i.master}


def _primary(facts: Facts) -> dict[tuple[str, bool], str]:
    """The first address of each interface and family: what its packets carry unless a route says otherwise."""
    found: dict[tuple[str, bool], str] = {}
    for interface in facts.interfaces.interfaces if facts.interfaces else ():
        for address in interface.addresses:
            if address.scope != "link":
                found.setdefault((interface.name, ":" in address.address), address.address)
    return found
