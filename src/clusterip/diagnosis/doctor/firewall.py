"""Rules that are no Service's and stop a Service's packets: shown by walking packets through all hooks. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from ipaddress import ip_network

from msgspec import structs

from clusterip.diagnosis.answer import Trace
from clusterip.diagnosis.doctor.hostfacts import setting
from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.trace import Tracer
from clusterip.diagnosis.walk.surroundings import is_network
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt

TRIED = 40  # frontends a packet is sent to: a firewall seldom tells one ClusterIP from the next
_FOUND = frozenset({"host-firewall", "forward-policy-drop", "ip-forward"})


@dataclass(slots=True)  # filled packet by packet, and not kept
class _Stopped:
    """What one rule stopped."""

    finding: Finding
    frontends: list[Frontend] = field(default_factory=list)
    share: Fraction = Fraction(0)
    clients: set[str] = field(default_factory=set)


def find(known: Known, facts: Facts, programs: Sequence[Programmed]) -> Iterator[Finding]:
    tried = [p for p in programs if p.frontend.address and any(p.shares.values())][:TRIED]
    if not tried:
        yield from _without_services(known)
        return
    stopped: dict[tuple[str, str, str], _Stopped] = {}
    unknown: dict[str, Finding] = {}
    ranges = list(dict.fromkeys(_pod_ranges(known)))
    for p, whose, answer in _answers(known, Tracer(facts), tried, ranges):
        # Where the answer hangs on what is not known, only what happens in any case is told.
        hangs = any(outcome.when for outcome in answer.outcomes)
        if hangs and any(outcome.verdict not in ("dropped", "rejected") for outcome in answer.outcomes):
            unknown |= {f.object: f for f in answer.findings if f.id == "unknown-match"}
            continue
        for finding in answer.findings:
            if finding.id not in _FOUND:
                continue
            text = finding.evidence[0].text if finding.evidence else ""
            one = stopped.setdefault((finding.id, finding.object, text), _Stopped(finding))
            if p.frontend not in one.frontends:
                one.frontends.append(p.frontend)
            one.share = max(one.share, finding.share or Fraction(0))
            one.clients.add(whose)
    pods = next((r for r in ranges if ":" not in r), "") or "POD-RANGE"
    for one in stopped.values():
        told = _told(known, one, len(tried))
        yield structs.replace(told, remedy=told.remedy.replace("POD-RANGE", pods))
    for finding in unknown.values():
        remedy = "iptables -L -n -v   # whether the counters of this rule grow while you try; or clusterip trace --live"
        yield structs.replace(finding, remedy=remedy)


def _answers(
    known: Known, tracer: Tracer, tried: Sequence[Programmed], ranges: Sequence[str]
) -> Iterator[tuple[Programmed, str, Trace]]:
    """What becomes of a packet from this host, and of one from a pod."""
    for p in tried:
        to = Target(p.frontend.protocol, p.frontend.address, p.frontend.port)
        yield p, "this host's own", tracer.trace(Client("node", ""), to)
        if source := _pod_address(known, ranges, p):
            yield p, "a pod's", tracer.trace(Client("pod", source), to)


def _pod_address(known: Known, ranges: Sequence[str], p: Programmed) -> str:
    """Some pod: one that is known, else one of the range that pods are in; "": not known."""
    for pod in known.pods:
        for given in pod.status.pod_ips:
            if (":" in given.ip) == (":" in p.frontend.address) and not pod.spec.host_network:
                return given.ip
    six = ":" in p.frontend.address
    for network in (*ranges, *_neighbours(p)):
        if (":" in network) == six and is_network(network):
            found = ip_network(network, strict=False)
            return str(found[min(250, found.num_addresses - 1)])
    return ""


def _pod_ranges(known: Known) -> Iterator[str]:
    for node in known.nodes.values():
        yield from (r for r in (*node.spec.pod_cidrs, node.spec.pod_cidr) if r)
    for source in known.iptables:
        nat = source.values.ruleset.tables.get("nat")
        for name in ("KUBE-SERVICES", *(n for n in (nat.chains if nat else ()) if n.startswith("KUBE-SVC-"))):
            for rule in nat.rules(name) if nat else ():
                yield from (m.network for m in rule.matches if isinstance(m, ipt.Source) and m.negated)


def _neighbours(p: Programmed) -> Iterator[str]:
    for backend in p.shares:
        address = backend.rpartition(":")[0].strip("[]")
        yield f"{address}/{64 if ':' in address else 24}"


def _told(known: Known, one: _Stopped, tried: int) -> Finding:
    finding = one.finding
    count = len(one.frontends)
    whose = " and ".join(sorted(one.clients))
    scope = f"{one.frontends[0]}" + (f" and {count - 1} more of {tried} tried" if count > 1 else "")
    place = finding.evidence[0] if finding.evidence else Evidence("")
    if finding.id == "forward-policy-drop":
        message = f"Nothing accepts what is forwarded to pods, and the policy of {finding.object} is DROP: {whose} "
        message += f"connections to {scope} are translated and then dropped."
        remedy = "iptables -A FORWARD -s POD-RANGE -j ACCEPT; iptables -A FORWARD -d POD-RANGE -j ACCEPT   # Docker "
        remedy += "sets the policy: iptables -P FORWARD ACCEPT"
        return Finding(finding.id, "E", finding.object, message, finding.evidence, one.share or None, remedy)
    if finding.id == "ip-forward" or finding.object == "routing":
        _, said = setting(known, finding.object.removeprefix("setting "))
        said_of_it = finding.message if said else finding.message[:1].upper() + finding.message[1:]
        message = f"{said_of_it}. So it is with {whose} connections to {scope}."
        return structs.replace(finding, message=message, evidence=said or finding.evidence, share=one.share or None)
    behind = _shadowed(known, finding.object, place)
    message = f"{finding.object}: a rule that is no Service's stops {whose} connections to {scope}: {place.text}."
    if behind:
        message += f" Rules that would accept them stand behind it ({', '.join(str(n) for n, _ in behind)}) and are "
        message += "never asked."
    evidence = (*finding.evidence, *(e for _, e in behind[:3]))
    return Finding("host-firewall", "E", finding.object, message, evidence, one.share or None, _remedy(place.text))


def _shadowed(known: Known, where: str, place: Evidence) -> list[tuple[int, Evidence]]:
    """Rules behind it in its chain that accept by address: their numbers from 1, as iptables counts."""
    table, _, chain = where.partition("/")
    for source in known.iptables:
        rules = source.values.ruleset.rules(table, chain)
        texts = [line_text(chain, rule) for rule in rules]
        if place.text not in texts or place.file not in ("", source.file):
            continue
        at = texts.index(place.text)
        return [
            (number + 1, source.rule(table, chain, number, texts[number]))
            for number in range(at + 1, len(rules))
            if isinstance(rules[number].target, ipt.Accept)
            and any(isinstance(m, (ipt.Source, ipt.Destination)) for m in rules[number].matches)
        ]
    return []


def _remedy(text: str) -> str:
    if "icmp-host-prohibited" in text or "admin-prohib" in text or "firewalld" in text:
        return "firewall-cmd --permanent --zone=trusted --add-source=POD-RANGE && firewall-cmd --reload"
    if "ufw" in text:
        return "ufw route allow from POD-RANGE; ufw route allow to POD-RANGE   # or DEFAULT_FORWARD_POLICY=ACCEPT"
    if "cali-" in text:
        return "calicoctl get networkpolicy,globalnetworkpolicy -A   # a policy, or felix that is not in sync"
    if "DOCKER" in text:
        return "iptables -I DOCKER-USER -s POD-RANGE -j ACCEPT; iptables -I DOCKER-USER -d POD-RANGE -j ACCEPT"
    return "put a rule that accepts the pods' range before it, or take it out where the firewall is configured"


def _without_services(known: Known) -> Iterator[Finding]:
    """A filter table alone: whether anything in it accepts what is forwarded by address or interface."""
    for source in known.iptables:
        table = source.values.ruleset.tables.get("filter")
        forward = table.chains.get("FORWARD") if table else None
        if table is None or forward is None or forward.policy != "DROP":
            continue
        accepts = any(
            isinstance(rule.target, ipt.Accept)
            and not any(isinstance(m, (ipt.ConnState, ipt.Mark)) for m in rule.matches)
            and not _dockers(rule)
            for chain in table.chains.values()
            if chain.name not in ("INPUT", "OUTPUT")
            for rule in chain.rules
        )
        if accepts:
            continue
        message = "The policy of FORWARD is DROP, and nothing accepts what is forwarded to pods: a Service's packets "
        message += "are translated and then dropped, but for those that are masqueraded."
        place = Evidence(":FORWARD DROP", source.file)
        remedy = "iptables -P FORWARD ACCEPT   # or: iptables -A FORWARD -s POD-RANGE -j ACCEPT, and -d POD-RANGE"
        yield Finding("forward-policy-drop", "E", "filter/FORWARD", message, (place,), Fraction(1), remedy)


def _dockers(rule: ipt.Rule) -> bool:
    """Of its own bridges."""
    return any(
        isinstance(m, (ipt.InInterface, ipt.OutInterface)) and m.pattern.startswith(("docker", "br-", "lo"))
        for m in rule.matches
    )
