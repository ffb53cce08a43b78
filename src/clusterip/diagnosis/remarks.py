"""What the answer to one question shows of faults: findings that the walk itself proves."""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from clusterip.diagnosis import ends
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.frontends import Frontend
from clusterip.diagnosis.outcomes import Reached
from clusterip.diagnosis.packet import ICMP, socket
from clusterip.diagnosis.question import addresses
from clusterip.diagnosis.reply import link
from clusterip.diagnosis.stops import no_endpoints, no_local_endpoints, no_translation
from clusterip.diagnosis.subject import cost, name
from clusterip.diagnosis.tracked import flows, translation
from clusterip.diagnosis.walk.branch import Condition, End, Fired
from clusterip.diagnosis.walk.hooks import FORWARDS_NOTHING
from clusterip.diagnosis.walked import Walked
from clusterip.rulesets.conntrack import Entry
from clusterip.services.resolve import SERVICE_NAME_LABEL

_PROXY_CHAINS = ("KUBE-", "CLUSTERIP-")
_PROXY_TABLES = ("kube-proxy", "clusterip")


def remarks(walked: Walked) -> list[Finding]:
    return [finding for look in _LOOKS for finding in look(walked)]


def _stopped(walked: Walked) -> Iterator[Finding]:
    """By which rule, and whose it is."""
    by_rule: dict[tuple[str, str, str, int], list[Reached]] = {}
    for one in walked.found:
        last = one.last
        if one.verdict in ("dropped", "rejected") and last:
            by_rule.setdefault((last.program, last.table, last.chain, last.rule), []).append(one)
    for stopped in by_rule.values():
        if finding := _stop(walked, stopped):
            yield finding


def _stop(walked: Walked, stopped: list[Reached]) -> Finding | None:
    last, verdict = stopped[0].last, stopped[0].verdict
    assert last is not None  # by the caller
    text, file, line = walked.programs.told(last.program, last.table, last.chain, last.rule)
    evidence = (Evidence(text or last.text, file, line),)
    of = cost(stopped)
    said = f"{text} {last.text}"
    if last.program == "ipvs" or "has no endpoints" in said or no_endpoints(last):
        message = f"the Service has no usable backend: new connections are {verdict}"
        return Finding("no-endpoints", "E", name(walked), message, evidence, of, "kubectl get endpointslices,pods -A")
    by_proxy = _is_proxys(last) and verdict == "dropped" and "no-endpoint" in said
    if "has no local endpoints" in said or by_proxy or no_local_endpoints(last):
        message = f"a Local traffic policy, and no backend on this node: new connections are {verdict}"
        return Finding("no-local-endpoints", "E", name(walked), message, evidence, of)
    if last.hook == "socket":
        message = f"the maps of eBPF mode are not whole: new connections are {verdict}"
        return Finding("ebpf-slot-missing", "E", name(walked), message, evidence, of)
    if last.hook == "routing":
        return _not_routed(walked, last, of)
    where = f"{last.table}/{last.chain}"
    if last.rule < 0 and last.hook == "forward":
        message = "no rule accepts this forwarded packet, and the policy drops it"
        remedy = "iptables -A FORWARD -s <pod CIDR> -j ACCEPT; iptables -A FORWARD -d <pod CIDR> -j ACCEPT"
        return Finding("forward-policy-drop", "E", where, message, evidence, of, remedy)
    if _unconditional(text):
        message = "this drop asks nothing of a packet, so it drops all: the match that made it selective is lost"
        return Finding("unconditional-drop", "E", where, message, evidence, of)
    if _is_proxys(last):
        return None  # what the Service asks for: source ranges, ports that it does not have
    message = f"a rule that is no Service's has {verdict} it first"
    return Finding("host-firewall", "E", where, message, evidence, of)


def _not_routed(walked: Walked, last: Fired, cost: Fraction | None) -> Finding:
    """By the kernel itself: no rule has a part in it."""
    if last.text == FORWARDS_NOTHING:
        setting = "net.ipv6.conf.all.forwarding" if walked.packet.ipv6 else "net.ipv4.ip_forward"
        message = f"{setting} is 0 and must be 1: packets to pods are translated and then dropped, whatever rules say"
        evidence = (Evidence(f"{setting} = 0"),)
        return Finding("ip-forward", "E", f"setting {setting}", message, evidence, cost, f"sysctl -w {setting}=1")
    message = f"a route of this node stops it: {last.text}"
    return Finding("host-firewall", "E", "routing", message, (Evidence(last.text),), cost, "ip route")


def _is_proxys(fired: Fired) -> bool:
    return fired.chain.startswith(_PROXY_CHAINS) or fired.table.rpartition(" ")[2] in _PROXY_TABLES


def _unconditional(text: str) -> bool:
    """ "-A KUBE-FIREWALL -m comment --comment ... -j DROP"."""
    words = text.split('"')
    bare = (words[0] + words[-1] if len(words) > 2 else text).split()
    return bare[:2] == ["-A", "KUBE-FIREWALL"] and set(bare[2:]) <= {"-m", "comment", "--comment", "-j", "DROP"}


def _lost(walked: Walked) -> Iterator[Finding]:
    for one in walked.found:
        if one.verdict != "unknown":
            continue
        note, of = one.branch.note, one.branch.probability
        match note.split():
            case ["chain", chain, "of", "table", *words]:
                table = " ".join(words).partition(" is ")[0]
                yield Finding("chain-missing", "E", f"{table}/{chain}", note, (), of)
            case ["no", "rules", *_]:
                remedy = "give the output of: iptables-save; ip6tables-save; nft list ruleset"
                yield Finding("incomplete-input", "I", name(walked), note, (), of, remedy)
            case ["IPVS", "takes", *_]:
                yield Finding("incomplete-input", "I", name(walked), note, (), of, "give the output of: ipvsadm -Ln")
            case _:
                yield Finding("unknown-match", "W", note.partition(":")[0], f"{note}: it decides the answer", (), of)


def _hanging(walked: Walked) -> Iterator[Finding]:
    """What the answer hangs on that is not known."""
    seen: dict[str, Condition] = {}
    for one in walked.found:
        for condition in one.branch.when:
            if condition.kind != "affinity":
                seen.setdefault(condition.key, condition)
    for condition in seen.values():
        if condition.kind == "unmodelled":
            message = f"whether {condition.yes} is not known; both answers are given"
            yield Finding("unknown-match", "W", condition.object, message, (Evidence(condition.yes),))
        elif condition.kind == "order":
            message = f"the order in which two programs run decides, and no listing tells it: {condition.yes}, or not"
            yield Finding("duplicate-backends", "E", name(walked), message)
        else:
            message = f"not known whether {condition.yes}; both answers are given"
            yield Finding(
                "incomplete-input", "I", condition.object or name(walked), message, (), None, _missing(condition)
            )


def _on_another_node(walked: Walked) -> Iterator[Finding]:
    """The client's packets meet another node's rules first: whatever these say of them, it never comes to that."""
    here = walked.facts.node
    for pod in walked.facts.pods if here and walked.client.kind == "pod" else ():
        there = pod.spec.node_name
        if walked.packet.source in addresses(pod) and not pod.spec.host_network and there not in ("", here):
            meta = pod.metadata
            message = f"the pod is on {there}, whose rules its packets meet; these are {here}'s"
            remedy = f"ask the same with the rules of {there}: --node {there}"
            yield Finding("other-node", "W", f"pod {meta.namespace}/{meta.name}", message, (), None, remedy)


def _granted(walked: Walked) -> Iterator[Finding]:
    if not walked.granted:
        return
    first = "; ".join(c.no for c in walked.granted[:3]) + ("; ..." if len(walked.granted) > 3 else "")
    message = f"taken for granted, and it would change the answer: {first}"
    yield Finding("incomplete-input", "I", name(walked), message, (), None, "give the output of: ip addr; ip route")


def _missing(condition: Condition) -> str:
    if condition.key.startswith("local "):
        return "give the output of: ip addr"
    if condition.key.startswith("set "):
        return "give the output of: ipset save"
    if "address" in condition.key or condition.key.startswith(("comes in by", "goes out by")):
        return "give the output of: ip addr; ip route"
    return "say more of the packet: a source port, --in"


def _not_asked_for(walked: Walked) -> Iterator[Finding]:
    """The address is a Service's, the packet is not one that Services take."""
    packet = walked.packet
    ours = [f for f in walked.frontends if f.address == packet.destination]
    translated = any(r.verdict == "delivered" for r in walked.found)
    if not ours or translated:
        return
    if packet.protocol in ICMP:
        test = f"curl http://{socket(packet.destination, ours[0].port)}/"
        message = "a ping is not translated: a Service takes its own ports alone; test with its protocol"
        yield Finding("not-a-service-protocol", "I", name(walked), message, (), None, test)
    elif not any((f.port, f.protocol) == (packet.destination_port, packet.protocol) for f in ours):
        ports = ", ".join(sorted({f"{f.port}/{f.protocol}" for f in ours}))
        message = f"no port {packet.destination_port}/{packet.protocol}: the Service has {ports}"
        yield Finding("wrong-service-port", "E", name(walked), message, (), Fraction(1))


def _not_hooked(walked: Walked) -> Iterator[Finding]:
    """A rule would refuse it, and no hook leads there."""
    packet = walked.packet
    if not any(r.verdict == "passed" for r in walked.found):
        return
    for (program, table), rules in walked.programs.tables.items():
        for chain in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"):
            for rule in (rules.applicable(chain, packet) or ()) if table == "filter" else ():
                judged = rules.judge(chain, rule, "forward", walked.found[0].branch)
                if any(act in (End.REJECT, End.DROP) for _, act in judged):
                    text, file, line = walked.programs.told(program, table, chain, rule)
                    message = f"a rule refuses it, but no hook of its way leads to {table}/{chain}: it waits in vain"
                    yield Finding("no-endpoints", "E", name(walked), "the Service has no usable backend", ())
                    yield Finding(
                        "reject-not-hooked", "E", name(walked), message, (Evidence(text, file, line),), Fraction(1)
                    )


def _untranslated(walked: Walked) -> Iterator[Finding]:
    """A port that the Service has, and no backend was chosen: its rules are not all there."""
    packet = walked.packet
    asked = (packet.destination, packet.destination_port, packet.protocol)
    whose = next((f for f in walked.frontends if (f.address, f.port, f.protocol) == asked), None)
    if whose is None or walked.tracked or not _translates(walked) or not _may_have_backends(walked, whose):
        return
    lost = [
        one
        for one in walked.found
        if one.verdict == "passed" or (one.last is not None and no_translation(one.last))
        if one.branch.packet.destination == packet.destination
    ]
    if lost:
        message = "nothing takes the packet to a backend: a rule of this port of the Service, or an element of a map, "
        message += "is not there"
        remedy = "clusterip doctor   # of the same node: what is missing, and what writes it anew"
        yield Finding("missing-endpoint", "E", name(walked), message, (), cost(lost), remedy)


def _translates(walked: Walked) -> bool:
    """Whether rules that rewrite destinations were given at all, of the packet's family."""
    facts, six = walked.facts, walked.packet.ipv6
    if any(r.ruleset.rules("nat", "PREROUTING") for r in facts.iptables if r.ipv6 == six):
        return True
    tables = [t for given in facts.nft for t in given.ruleset if t.family in ("inet", "ip6" if six else "ip")]
    return any(c.hook and c.hook.type == "nat" for t in tables for c in t.chains.values())


def _may_have_backends(walked: Walked, whose: Frontend) -> bool:
    """Unless the API is known to have none."""
    label = {SERVICE_NAME_LABEL: whose.service}.items()
    held = [s for s in walked.facts.slices if s.metadata.namespace == whose.namespace]
    held = [s for s in held if label <= s.metadata.labels.items()]
    return not held or any(e.conditions.ready is not False for s in held for e in s.endpoints or ())


def _tracked(walked: Walked) -> Iterator[Finding]:
    """What the connection table holds of this client and destination."""
    packet = walked.packet
    asked = (packet.destination, packet.destination_port, packet.protocol)
    if all((f.address, f.port, f.protocol) != asked for f in walked.frontends):
        return
    known = (walked.tracked.entry,) if walked.tracked else flows(walked.facts, packet)
    lost = [e for e in known if translation(e).destination is None]
    if lost:
        message = "an entry of the connection table leaves a flow untranslated, and each packet of it keeps it alive"
        remedy = (
            f"conntrack -D -p {packet.protocol} --orig-dst {packet.destination} "
            f"--orig-port-dst {packet.destination_port} --reply-src {packet.destination}"
        )
        yield Finding("conntrack-blackhole", "E", name(walked), message, tuple(map(_shown, lost[:3])), None, remedy)
    kept = [e for e in known if e not in lost]
    if kept and not walked.tracked:
        where = ", ".join(sorted({socket(e.reply.source, e.reply.source_port) for e in kept})[:3])
        message = f"flows of this client stay where they are ({where}): rules choose for new ones alone"
        yield Finding("established-flows", "I", name(walked), message, tuple(map(_shown, kept[:3])))


def _shown(entry: Entry) -> Evidence:
    one, back = entry.original, entry.reply
    text = f"{entry.protocol} {socket(one.source, one.source_port)} -> {socket(one.destination, one.destination_port)}"
    return Evidence(f"{text}, answered from {socket(back.source, back.source_port)}", "", entry.line)


def _hairpin(walked: Walked) -> Iterator[Finding]:
    """A pod that reaches itself."""
    packet = walked.packet
    itself = [
        r for r in walked.found if r.verdict == "delivered" and r.branch.packet.destination == packet.source != ""
    ]
    if not itself or walked.client.kind != "pod":
        return
    of = cost(itself)
    if any(not r.branch.packet.source_rewritten for r in itself):
        message = "the client is itself a backend and is sent its own packets with its own source: they never arrive"
        yield Finding("masquerade-missing", "E", name(walked), message, (), of)
        return
    port = next(
        (i for i in (walked.facts.interfaces.interfaces if walked.facts.interfaces else ()) if i.hairpin is False), None
    )
    if port:
        message = f"the client is itself a backend, and bridge port {port.name} sends nothing back where it came from"
        remedy = f"bridge link set dev {port.name} hairpin on"
        yield Finding("hairpin-off", "E", name(walked), message, (), of, remedy)


def _beside(walked: Walked) -> Iterator[Finding]:
    """Of the outcomes those where the backend is the client's neighbour."""
    if walked.client.kind != "outside":
        return
    known, client = walked.hooks.surroundings, walked.packet.source
    past = [
        r
        for r in walked.found
        if r.verdict == "delivered"
        and not r.branch.packet.source_rewritten
        and link(known, client, r.branch.packet.destination)
    ]
    if not past:
        return
    backends = ", ".join(sorted({socket(r.branch.packet.destination, r.branch.packet.destination_port) for r in past}))
    interface = link(known, client, past[0].branch.packet.destination)
    message = f"client and backend ({backends}) are neighbours behind {interface}: the answer goes straight to the "
    message += "client, past this node, so nothing translates it back, and the client refuses it"
    evidence = tuple(
        Evidence(f"{route.network} dev {route.interface}")
        for address in (client, past[0].branch.packet.destination)
        if (route := known.route(address))
    )
    remedy = f"masquerade it on this node: iptables -t nat -A POSTROUTING -s {client} -o {interface} -m conntrack "
    remedy += "--ctstate DNAT -j MASQUERADE; or tell the proxy the pods' range (clusterCIDR)"
    yield Finding("masquerade-missing", "E", name(walked), message, tuple(dict.fromkeys(evidence)), cost(past), remedy)


def _returning(walked: Walked) -> Iterator[Finding]:
    back = walked.back
    if back is None:
        return
    if back.direct == "elsewhere":
        message = "the backend is behind another node and answers the client directly, which does not know the sender"
        yield Finding("masquerade-missing", "E", name(walked), message)
    elif back.direct == "bridged":
        message = "client and backend share a bridge that asks no rules: the answer is not translated back, and refused"
        remedy = "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1"
        evidence = (Evidence("net.bridge.bridge-nf-call-iptables = 0"),)
        yield Finding("br-netfilter", "E", "node " + (walked.facts.node or "?"), message, evidence, None, remedy)
    elif back.end in (End.DROP, End.REJECT) and back.branch.trail:
        last = back.branch.trail.fired
        text, file, line = walked.programs.told(last.program, last.table, last.chain, last.rule)
        message = f"the answer is {'dropped' if back.end is End.DROP else 'rejected'} on its way back"
        where = f"{last.table}/{last.chain}"
        yield Finding("host-firewall", "E", where, message, (Evidence(text or last.text, file, line),), Fraction(1))


_LOOKS: tuple[Callable[[Walked], Iterable[Finding]], ...] = (
    _stopped,
    _lost,
    _hanging,
    _on_another_node,
    _granted,
    _not_asked_for,
    _not_hooked,
    _untranslated,
    _tracked,
    _hairpin,
    ends.nobody,
    ends.off_the_pods_link,
    ends.without_the_way_back,
    _beside,
    _returning,
)
