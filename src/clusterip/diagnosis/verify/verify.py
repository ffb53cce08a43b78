"""Does the kernel hold what the API says? For every packet: equal, or different with a packet that shows it."""

from collections import defaultdict
from collections.abc import Sequence

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.verify import hooks, sockets
from clusterip.diagnosis.verify.literals import Literals
from clusterip.diagnosis.verify.premises import Premises, settled
from clusterip.diagnosis.verify.report import Unproven, Verification
from clusterip.diagnosis.verify.search import NOWHERE, Search
from clusterip.diagnosis.verify.sources import clients
from clusterip.diagnosis.verify.ways import NotModelled, Ways
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.ipvs import IPVS
from clusterip.diagnosis.walk.programs import Kept, programs
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.model.objects import EndpointSlice
from clusterip.services.resolve import SERVICE_NAME_LABEL, resolve
from clusterip.services.table import FAMILIES, Entry, Family


def verify(facts: Facts, premises: Premises) -> Verification:
    """Of every family of which there are rules or Services."""
    parts = []
    beneath: dict[Family, Verification] = {}
    for family in FAMILIES:
        table = entries(facts, premises, family)
        if table or _has_rules(facts, ipv6=family == "IPv6"):
            beneath[family] = verify_table(facts, table, premises, ipv6=family == "IPv6")
            parts += [beneath[family], *_of_sockets(facts, table, premises, family)]
    these = {family: _clients(premises, family) for family in FAMILIES}
    return _together([*parts, *hooks.verify_hooks(facts, {f: v.verdict for f, v in beneath.items()}, these)])


def _of_sockets(facts: Facts, table: Sequence[Entry], premises: Premises, family: Family) -> list[Verification]:
    """Where eBPF mode is."""
    if facts.sockets is None:
        return []
    policy, these = premises.policy(ipv6=family == "IPv6"), _clients(premises, family)
    return [sockets.verify_sockets(table, facts.sockets[family], policy, these, facts.hooks)]


def _clients(premises: Premises, family: Family) -> sockets.Clients:
    ipv6 = family == "IPv6"
    return sockets.clients(premises.pod_networks, premises.policy(ipv6=ipv6), ipv6=ipv6)


def entries(facts: Facts, premises: Premises, family: Family) -> list[Entry]:
    """The service table that the API's objects give on this node."""
    by_service: dict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for found in facts.slices:
        meta = found.metadata
        by_service[meta.namespace, meta.labels.get(SERVICE_NAME_LABEL, "")].append(found)
    return [
        entry
        for service in facts.services
        for entry in resolve(
            service, by_service[service.metadata.namespace, service.metadata.name], premises.context, family
        )
    ]


def verify_table(facts: Facts, table: Sequence[Entry], premises: Premises, *, ipv6: bool) -> Verification:
    """Of one family."""
    family = "IPv6" if ipv6 else "IPv4"
    if not _has_rules(facts, ipv6=ipv6):
        return _unproven(f"no rules of {family} were given", family, table)
    around = settled(facts, premises)
    has = programs(facts, around, Kept(), ipv6=ipv6)
    if any(isinstance(rules, IPVS) and rules.services is None for rules in has.tables.values()):
        return _unproven("the sets of IPVS mode are there, and ipvsadm -Ln was not given", family, table)
    try:
        ways = Ways(has, around, clients(premises, around.bound, ipv6=ipv6), _literals(facts, around, ipv6=ipv6))
    except NotModelled as error:
        return _unproven(error.message, family, table)
    policy = premises.policy(ipv6=ipv6)
    search = Search(ways, Hooks(has.chains, around), table, policy, premises.excluded)
    search.run()
    unproven = (*search.unproven, *_untold(facts, table, premises, ipv6=ipv6))
    return Verification(
        verdict="different" if search.differences else "unproven" if unproven else "equal",
        services=len(table),
        frontends=len(search.claims),
        differences=search.differences,
        unproven=unproven,
        others=tuple(dict.fromkeys(search.others)),
    )


def _unproven(what: str, family: str, table: Sequence[Entry]) -> Verification:
    return Verification(verdict="unproven", services=len(table), unproven=(Unproven(what, family),))


def _literals(facts: Facts, around: Surroundings, *, ipv6: bool) -> Literals:
    """Of what surrounds the rules: the node's own addresses, and where routes lead."""
    literals = Literals(facts.ipsets or {}, ipv6=ipv6)
    for network in (*NOWHERE, *around.pod_ranges, *(route.network for route in around.routes)):
        literals.add_network(network)
    literals.add_group(around.local, "local")
    return literals


def _has_rules(facts: Facts, *, ipv6: bool) -> bool:
    families = {"inet", "ip6" if ipv6 else "ip"}
    servers = facts.ipvs.services if facts.ipvs else ()
    if any((":" in server.frontend.address) == ipv6 for server in servers):
        return True
    return any(r.ipv6 == ipv6 for r in facts.iptables) or any(
        table.family in families for given in facts.nft for table in given.ruleset
    )


def _untold(facts: Facts, table: Sequence[Entry], premises: Premises, *, ipv6: bool) -> list[Unproven]:
    """What the input does not tell, so that nothing can be said of it."""
    found = []
    if any(r.listed and r.ipv6 == ipv6 for r in facts.iptables):
        found.append(Unproven("iptables -L does not tell all of a rule: give iptables-save", "rules"))
    known = any((":" in address) == ipv6 for address in premises.addresses)
    if any(e.node_port for e in table) and not known and premises.node_port_addresses != ():
        ports = [str(e.node_port) for e in table if e.node_port]
        found.append(Unproven("no address of the node is known, so no node port was looked at", ", ".join(ports[:8])))
    return found


def _together(parts: Sequence[Verification]) -> Verification:
    if not parts:
        nothing = Unproven("neither rules nor Services were given", "everything")
        return Verification(verdict="unproven", unproven=(nothing,))
    verdicts = {p.verdict for p in parts}
    return Verification(
        verdict="different" if "different" in verdicts else "equal" if verdicts == {"equal"} else "unproven",
        services=sum(p.services for p in parts),
        frontends=sum(p.frontends for p in parts),
        differences=tuple(d for p in parts for d in p.differences),
        unproven=tuple(u for p in parts for u in p.unproven),
        others=tuple(o for p in parts for o in p.others),
    )
