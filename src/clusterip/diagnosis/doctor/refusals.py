"""Frontends that the rules refuse or drop, and why: no endpoints, a Local policy without a backend here. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from clusterip.diagnosis.doctor import policies, proxies
from clusterip.diagnosis.doctor.backends import equal_shares, wanted
from clusterip.diagnosis.doctor.known import Key, Known, Sourced
from clusterip.diagnosis.doctor.programmed import (
    Form,
    Frontend,
    Programmed,
    asked,
    names_by_address,
    names_by_digest,
    service_name,
    share_list,
)
from clusterip.diagnosis.doctor.programmed_nft import frontend_of, target_of
from clusterip.diagnosis.doctor.proxies import Writer
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.rulesets import proxylog
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.nft import values as nft

NO_LOCAL = "has no local endpoints"
_REFUSING = ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES")
_CLUSTER_IP_CHAINS = ("KUBE-SERVICES", "KUBE-SVL-")


@dataclass(frozen=True, slots=True)
class Refusal:
    form: Form
    file: str
    chain: str
    frontend: Frontend  # of no address and port where a chain of the Service itself says it
    name: str  # "default/nginx:http"
    answer: Literal["reject", "drop"]
    local: bool  # because this node has no backend of a Local policy
    place: Evidence
    packets: int = 0  # that it has counted; 0 also where the dump has no counters
    writer: Writer = ""  # where its form tells

    @property
    def key(self) -> Key:
        namespace, _, rest = self.name.partition("/")
        return Key(namespace, rest.partition(":")[0]) if rest else Key("", "")

    @property
    def object(self) -> str:
        if self.name:
            return f"service {self.name}"
        return f"frontend {self.frontend}" if self.frontend.port else f"chain {self.chain}"


class _Names(NamedTuple):
    """Of Service ports, for dumps that show no comments."""

    by_address: Mapping[Frontend, str]
    by_digest: Mapping[str, str]


def refusals(known: Known) -> tuple[Refusal, ...]:
    names = _Names(names_by_address(known), names_by_digest(known))
    found = [r for source in known.iptables for r in _iptables(source, names)]
    found += [r for rules in known.nft for table in rules.values for r in _nft(rules, table)]
    return tuple(found)


def _iptables(source: Sourced[Saved], names: "_Names") -> Iterator[Refusal]:
    for table in source.values.ruleset:
        for name, chain in table.chains.items():
            for number, rule in enumerate(chain.rules):
                answer = _answer(rule)
                told = _told(name, rule, names) if answer else None
                if not answer or told is None:
                    continue
                service, local = told
                place = source.rule(table.name, name, number, line_text(name, rule))
                packets = rule.counters.packets if rule.counters else 0
                yield Refusal("iptables", source.file, name, asked(rule), service, answer, local, place, packets)


def _told(chain: str, rule: ipt.Rule, names: "_Names") -> tuple[str, bool] | None:
    """Whose port it is and whether for want of a local backend; None: it is no proxy's refusal."""
    if rule.comment:
        service, local = service_name(rule.comment), NO_LOCAL in rule.comment
        return (service, local) if service and (local or "has no endpoints" in rule.comment) else None
    frontend = asked(rule)
    if chain in _REFUSING and frontend.address and frontend.port:
        return names.by_address.get(frontend, ""), _answer(rule) == "drop"
    if chain.startswith(("KUBE-XLB-", "KUBE-SVL-")) and _answer(rule) == "drop":
        return names.by_digest.get(chain.rpartition("-")[2], ""), True
    return None


def _answer(rule: ipt.Rule) -> Literal["reject", "drop", ""]:
    match rule.target:
        case ipt.Reject():
            return "reject"
        case ipt.Drop() | ipt.Jump("KUBE-MARK-DROP"):
            return "drop"
    return ""


def _nft(source: Sourced[nft.Ruleset], table: nft.Table) -> Iterator[Refusal]:
    for held in table.sets.values():
        if not held.name.startswith("no-endpoint"):
            continue
        line = _line_of_map(source, table, held.name)
        for element in held.elements:
            frontend = frontend_of(element.key)
            if frontend is None:
                continue
            dropped = isinstance(element.value, nft.Drop)
            answer: Literal["reject", "drop"] = "drop" if dropped else "reject"
            if not dropped and not target_of(element.value):
                continue
            text = f"table {table.family} {table.name}, map {held.name}: {frontend} : {answer}"
            name = element.comment.strip('"')
            place = Evidence(text, source.file, line)
            chain = f"map {held.name}"
            yield Refusal("nftables", source.file, chain, frontend, name, answer, dropped, place, writer="kube-proxy")


def _line_of_map(source: Sourced[nft.Ruleset], table: nft.Table, name: str) -> int:
    """Of the rule that asks it; 0: none does."""
    for chain in table.chains.values():
        for number, rule in enumerate(chain.rules):
            if any(isinstance(s, nft.VerdictMap) and s.map == nft.SetName(name) for s in rule.statements):
                return source.places.line(f"{table.family} {table.name}", chain.name, number)
    return 0


def find(
    known: Known, found: Sequence[Refusal], programs: Sequence[Programmed], explained: Collection[str]
) -> Iterator[Finding]:
    """`explained`: Services whose lack of endpoints the API's objects have explained already."""
    by_ipvs = {p.frontend: p for p in programs if p.form == "ipvs" and any(p.shares.values())}
    served = {p.key for p in programs if p.name and any(p.shares.values())}
    told: dict[tuple[str, str], Finding] = {}  # a Service port has several frontends, and the worst counts
    for refusal in found:
        finding = _no_local(known, refusal, served) if refusal.local else _of(known, refusal, by_ipvs, explained)
        if finding and finding.rank < told.setdefault((finding.id, finding.object), finding).rank:
            told[finding.id, finding.object] = finding
    yield from told.values()
    yield from _empty_servers(programs)


def _of(
    known: Known, refusal: Refusal, by_ipvs: dict[Frontend, Programmed], explained: Collection[str]
) -> Finding | None:
    if refusal.frontend in by_ipvs:
        return _of_another_mode(known, refusal, by_ipvs[refusal.frontend])
    wants = wanted(known, refusal.key)
    usable = wants[port].usable if (port := refusal.name.partition(":")[2]) in wants else ()
    if usable:
        message = f"The rules refuse {refusal.frontend} as without endpoints, and the API has {equal_shares(usable)}. "
        message += "The proxy is not applying updates."
        remedy = proxies.by(known, refusal.writer).restart()
        return Finding("missing-endpoint", "E", refusal.object, message, (refusal.place,), Fraction(1), remedy)
    if str(refusal.key) in explained:
        return None
    what = "rejects: the client is refused at once" if refusal.answer == "reject" else "drops: the client hears nothing"
    message = f"The Service has no endpoints; for {refusal.frontend} this node {what}, where the rule is reached."
    namespace, name = refusal.key
    remedy = f"kubectl describe service {name} -n {namespace}; kubectl get pods -n {namespace} --show-labels"
    return Finding("no-endpoints", "E", refusal.object, message, (refusal.place,), Fraction(1), remedy)


def _of_another_mode(known: Known, refusal: Refusal, program: Programmed) -> Finding:
    message = f"IPVS serves {refusal.frontend} ({share_list(program.shares)}), and a rule left from iptables mode "
    message += "refuses it. Pods' packets pass filter/INPUT before IPVS takes them up there, so they are refused; "
    message += "this host's own are rewritten before they meet the rule, and arrive."
    remedy = f"iptables -F {refusal.chain}; {known.proxy.cleanup}"
    evidence = (refusal.place, program.place)
    return Finding("stale-mode-rules", "E", refusal.object, message, evidence, Fraction(1), remedy)


def _empty_servers(programs: Sequence[Programmed]) -> Iterator[Finding]:
    """Virtual servers of IPVS without a real server on any node: on some it is the nodes that differ."""
    served = {p.frontend for p in programs if p.shares}
    for p in programs:
        if p.form == "ipvs" and not p.shares and p.frontend not in served:
            message = f"{p.frontend} has no real server: new connections are refused."
            remedy = f"kubectl get endpointslices -A | grep {p.key.name or p.frontend.address}"
            yield Finding("no-endpoints", "E", p.object, message, (p.place,), Fraction(1), remedy)


# --- Local policies ---------------------------------------------------------------------------------------------------


def _no_local(known: Known, refusal: Refusal, served: Collection[Key]) -> Finding | None:
    """`served`: Services that the rules have backends for. What is an error of it says `policies`."""
    if _blackholed(known, refusal):
        return None
    internal = _is_cluster_ip(known, refusal)
    policy = "internalTrafficPolicy" if internal else "externalTrafficPolicy"
    id_ = policies.INTERNAL if internal else policies.EXTERNAL
    endpoints = [
        (e.addresses[0], e.node_name or "")
        for s in known.slices_of.get(refusal.key, ())
        for e in s.endpoints or ()
        if e.addresses
    ]
    message = f"{policy}: Local, and this node has no backend of its own: packets "
    message += (
        f"to {refusal.frontend} are dropped here." if refusal.frontend.port else "that come from outside are dropped."
    )
    lost = _misnamed(known, endpoints) or (None if internal else _lost(known, refusal, endpoints, served))
    clients = internal and policies.has_clients(known, known.node)
    if lost is None and not clients:
        on = {node for _, node in endpoints if node}
        design = "No pod runs there that would ask, but for those on the host's network."
        message += f" {design if internal else policies.by_design(known, refusal.key, on)}"
        remedy = "" if internal else policies.to_see(known, refusal.key)
        return Finding(id_, "I", refusal.object, message, (refusal.place,), None, remedy)
    if endpoints:
        message += f" The slices have {', '.join(f'{a} on {node}' for a, node in endpoints)}."
    why = lost or _Lost("", (), "")
    message += f" {why.text}" if why.text else ""
    remedy = why.remedy or policies.patch(refusal.key, policy)
    return Finding(id_, "E", refusal.object, message, (refusal.place, *why.evidence), Fraction(1), remedy)


class _Lost(NamedTuple):
    """Why connections are lost by a policy that leaves this node without a backend."""

    text: str
    evidence: tuple[Evidence, ...]
    remedy: str = ""


def _misnamed(known: Known, endpoints: Sequence[tuple[str, str]]) -> _Lost | None:
    here = sorted(a for a, node in endpoints if node and node == known.node)
    renamed = [
        (log, e)
        for log in known.logs
        for e in proxylog.events(log.values)
        # A node that the API has was registered after the proxy had asked for it.
        if isinstance(e, proxylog.NodeNotFound) and e.node not in known.nodes
    ]
    said, evidence = [], []
    for log, event in renamed[-1:]:
        said.append(
            f'The proxy takes its node for "{event.node}", which the API does not have: no endpoint is local to such '
            "a name, wherever it runs."
        )
        evidence.append(log.at(event.line, f'nodes "{event.node}" not found'))
    if here:
        said.append(f"{', '.join(here)} is on this node by its slice: the names differ.")
    remedy = "start the proxy with the node's name as the API has it: --hostname-override=$(NODE_NAME), spec.nodeName"
    return _Lost(" ".join(said), tuple(evidence), remedy) if said else None


def _lost(
    known: Known, refusal: Refusal, endpoints: Sequence[tuple[str, str]], served: Collection[Key]
) -> _Lost | None:
    mine = policies.owner(known, refusal.frontend.address)
    if mine and mine[0] in ("", known.node):
        return _Lost(f"{refusal.frontend.address} is this node's own address: no other node gets them.", (mine[1],))
    if refusal.packets:
        return _Lost(f"The rule has counted {refusal.packets}: somebody sends to this node.", ())
    if not endpoints and not wanted(known, refusal.key) and refusal.key not in served:
        return _Lost("No backend of the Service is known, on this node or another.", ())
    return None


def _is_cluster_ip(known: Known, refusal: Refusal) -> bool:
    if refusal.form == "nftables":
        return any(
            refusal.frontend.address in {e.key.text for e in s.elements if isinstance(e.key, nft.Address)}
            for rules in known.nft
            for table in rules.values
            for s in table.sets.values()
            if s.name == "cluster-ips"
        )
    return refusal.chain.startswith(_CLUSTER_IP_CHAINS)


def _blackholed(known: Known, refusal: Refusal) -> bool:
    """Whether even pods of this node, which have a shorter way, fall into it: then that is what is told."""
    return (
        refusal.form == "nftables"
        and not _is_cluster_ip(known, refusal)
        and bool(refusal.frontend.address and _without_short_way(known, refusal.frontend))
    )


def blackholes(known: Known, found: Sequence[Refusal]) -> Iterator[Finding]:
    for refusal in found:
        if not (refusal.local and _blackholed(known, refusal)):
            continue
        chain = _without_short_way(known, refusal.frontend)
        message = f"{refusal.frontend} is an external address of a Service with externalTrafficPolicy: Local. On this "
        message += "node, which has no backend of its own, it is dropped for pods too: "
        message += (
            f'{chain} has no rule "short-circuit pod traffic", for kube-proxy does not know the pods\' range. The '
        )
        message += "host itself and the ClusterIP work."
        remedy = "set clusterCIDR (or detectLocalMode) in kube-proxy's configuration; until then pods use the "
        remedy += "ClusterIP"
        yield Finding("nft-local-blackhole", "E", refusal.object, message, (refusal.place,), Fraction(1), remedy)


def _without_short_way(known: Known, frontend: Frontend) -> str:
    """The frontend's external- chain if it lets no pod take the shorter way; "": it does, or there is none."""
    for rules in known.nft:
        for table in rules.values:
            for held in table.sets.values():
                for element in held.elements:
                    chain = target_of(element.value)
                    if chain.startswith("external-") and frontend_of(element.key) == frontend:
                        return "" if _lets_pods(table.rules(chain)) else chain
    return ""


def _lets_pods(rules: Sequence[nft.Rule]) -> bool:
    """A goto for sources of a range, or of an interface: not those of this node's own addresses alone."""
    return any(
        isinstance(s, nft.Match) and isinstance(s.left, (nft.Payload, nft.Meta)) and _goes(rule)
        for rule in rules
        for s in rule.statements
    ) or any(_goes(rule) and not any(isinstance(s, nft.Match) for s in rule.statements) for rule in rules)


def _goes(rule: nft.Rule) -> bool:
    return any(isinstance(s, (nft.Goto, nft.Jump)) and s.chain.startswith("service-") for s in rule.statements)
