"""What the host does to packets that the rules deliver: no part of what `verify` proves, and worth a remark. Pure.

Only what was read is spoken of. Whoever proves rules should not be told that they are wrong where they are right, nor
that all is well where nothing arrives.
"""

from collections.abc import Iterator, Sequence

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.findings import shortened
from clusterip.diagnosis.frontends import frontends
from clusterip.diagnosis.node import surroundings
from clusterip.diagnosis.question import addresses
from clusterip.diagnosis.walk.surroundings import Route
from clusterip.services.table import FAMILIES, Family

_FORWARDS: dict[Family, str] = {"IPv4": "net.ipv4.ip_forward", "IPv6": "net.ipv6.conf.all.forwarding"}
_NOTHING_PASSES = ("blackhole", "unreachable", "prohibit")
_NAMED = 3  # addresses


def remarks(facts: Facts, node: str, *, live: bool) -> tuple[str, ...]:
    """`node`: whose facts these are; "": not known. `live`: what a node has of eBPF mode was looked for."""
    found = list(_mode(facts)) if live else []
    for family in FAMILIES:
        if to := _backends(facts, family):
            found += _of(facts, node, family, to)
    return tuple(found)


def _mode(facts: Facts) -> Iterator[str]:
    """A proxy that cannot do eBPF mode falls back to what is beneath; or somebody took the maps away."""
    said = [g.manifest.document.get("mode") for g in facts.given if g.manifest.kind == "KubeProxyConfiguration"]
    if facts.sockets is None and said[-1:] == ["ebpf"]:
        yield (
            "the proxy's configuration says ebpf, and nothing of that mode is here: the rules serve every socket, and "
            "nobody node ports on the loopback's addresses"
        )


def _of(facts: Facts, node: str, family: Family, backends: Sequence[str]) -> Iterator[str]:
    setting = _FORWARDS[family]
    if facts.settings.number(setting) == 0:
        yield (
            f"{setting} is 0: this host forwards no packet of {family}, so that none of a pod's or from outside gets "
            "to a backend by way of it, whatever the rules say"
        )
    if not _routes_known(facts, family):
        return
    known = surroundings(facts, frontends(facts))
    lost: dict[tuple[str, bool], list[str]] = {}
    own = _own_pods(facts, node)
    for address in backends:
        if known.is_local(address) is True:
            continue
        route = known.route(address)
        if why := _lost(route, own=address in own):
            lost.setdefault((why, address in own), []).append(address)
    for (why, here), those in lost.items():
        named = shortened(those, _NAMED)
        whose = f"{named}, {'pods' if len(those) > 1 else 'a pod'} of this node" if here else named
        yield f"{why} to {whose}: what the rules send there does not arrive"


def _lost(route: Route | None, *, own: bool) -> str:
    """Why nothing arrives that way, in words; "": it may. A pod of the node is never behind its default route."""
    if route is None:
        return "no route leads"
    if route.kind in _NOTHING_PASSES:
        return f"the route {route.kind} {route.network} leads"
    if own and route.network.endswith("/0"):
        via = f" via {route.via}" if route.via else ""
        return f"only the default route{via} dev {route.interface} leads"
    return ""


def _backends(facts: Facts, family: Family) -> list[str]:
    """Addresses of ready endpoints."""
    return sorted(
        {
            address
            for found in facts.slices
            if found.address_type == family
            for endpoint in found.endpoints or ()
            if endpoint.conditions.ready is not False
            for address in endpoint.addresses
        }
    )


def _own_pods(facts: Facts, node: str) -> frozenset[str]:
    ours = (p for p in facts.pods if node and p.spec.node_name == node and not p.spec.host_network)
    return frozenset(a for p in ours if not p.status.ended for a in addresses(p))


def _routes_known(facts: Facts, family: Family) -> bool:
    """Of the family, and no rule sends packets to tables of its own."""
    routes = facts.routes.routes if facts.routes else ()
    tables = {rule.table for rule in (facts.policy.rules if facts.policy else ())}
    six = family == "IPv6"
    ours = any((":" in r.destination or any(":" in h.gateway for h in r.hops)) == six for r in routes)
    return ours and tables <= {"local", "main", "default"}
