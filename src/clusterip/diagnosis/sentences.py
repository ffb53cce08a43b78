"""The answer in a sentence."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import Frontend
from clusterip.diagnosis.outcomes import Reached, share, told, verdict, why
from clusterip.diagnosis.packet import ICMP, Packet
from clusterip.diagnosis.question import addresses
from clusterip.diagnosis.walk.surroundings import Surroundings

_EVEN = Fraction(1, 2**20)  # shares that differ by less, as the grid of 2**-31 makes them, are told as equal


def reason(found: Sequence[Reached], packet: Packet, frontends: Iterable[Frontend]) -> str:
    match verdict(found):
        case "delivered":
            return _delivered(found)
        case "unknown":
            return _unknown(found)
        case "passed" if all(r.verdict == "passed" for r in found):
            return _passed(packet, frontends, found[0].branch.packet.out_interface)
        case worst:
            parts = [_share(share(found, lambda r, v=v: r.verdict == v), v) for v in _verdicts(found)]  # type: ignore[misc]
            one = next(r for r in found if r.verdict == worst)
            return "; ".join(p for p in parts if p) + (f": {why(one)}" if why(one) else "")


def _delivered(found: Sequence[Reached]) -> str:
    fresh = [r for r in found if not r.remembered]
    backends = sorted({r.backend for r in fresh})
    rewritten = all(r.branch.packet.source_rewritten for r in fresh)
    hidden = _hides({r.branch.packet.source for r in fresh}) if rewritten else ""
    kept = ", or, if it is remembered, where it was before" if len(fresh) < len(found) else ""
    if len(backends) == 1:
        return f"delivered to {backends[0]}{kept}{hidden}"
    open_questions = {c: None for r in fresh for c in r.branch.when if c.kind != "affinity"}
    if open_questions:
        first = next(iter(open_questions))
        return f"delivered to {' or '.join(backends[:4])}; which depends on whether {first.yes}{hidden}"
    shares = [share(fresh, lambda r, b=b: r.backend == b) for b in backends]  # type: ignore[misc]
    low, high = min(shares), max(shares)
    even = f"each {Fraction(1, len(backends))}" + (", but for rounding" if low != high else "")
    each = even if high - low < _EVEN else f"{percent(low)} to {percent(high)} each"
    return f"delivered to one of {len(backends)} backends, {each}{kept}{hidden}"


def _hides(sources: set[str]) -> str:
    seen = next(iter(sources)) if len(sources) == 1 else ""
    return f"; the backend sees {seen or 'the node'}, not the client"


def _unknown(found: Sequence[Reached]) -> str:
    lost = next((r for r in found if r.verdict == "unknown"), None)
    if lost:
        return f"not known: {lost.branch.note}"
    ways = dict.fromkeys(f"{r.verdict} if {' and '.join(told(r.branch.when))}" for r in found if r.branch.when)
    return "it depends: " + "; ".join(list(ways)[:4])


def _passed(packet: Packet, frontends: Iterable[Frontend], interface: str | None) -> str:
    by = f" by {interface}" if interface else ""
    ours = [f for f in frontends if f.address == packet.destination]
    if not ours:
        return f"no rule stops or translates it: it goes on to {packet.destination}{by} as it is"
    if packet.protocol in ICMP:
        return f"{packet.destination} is a Service's address, which answers no ping: rules know ports of tcp, udp, sctp"
    ports = ", ".join(sorted({f"{f.port}/{f.protocol}" for f in ours}))
    nobody = "an address that no host owns, so nothing answers"
    if any((f.port, f.protocol) == (packet.destination_port, packet.protocol) for f in ours):
        return f"no rule translates or refuses it: it goes on{by} to {packet.destination}, {nobody}"
    return f"the Service at {packet.destination} has no such port (it has {ports}): it goes on{by}, to {nobody}"


def service(packet: Packet, frontends: Iterable[Frontend]) -> str:
    """Whose address it is: "default/web:http", "default/web" if the port is none of its; "": nobody knows."""
    ours = [f for f in frontends if f.address == packet.destination and f.service]
    exact = [f for f in ours if (f.port, f.protocol) == (packet.destination_port, packet.protocol)]
    return exact[0].name if exact else f"{ours[0].namespace}/{ours[0].service}" if ours else ""


def owner(facts: Facts, known: Surroundings, address: str) -> str:
    """Who has the address, if somebody is known to: "this node", "pod default/web-1", "node node-2"; "": nobody is."""
    if known.is_local(address) is True:
        return "this node"
    for pod in facts.pods:
        if address in addresses(pod):
            return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    for node in facts.nodes:
        if any(a.address == address for a in node.status.addresses):
            return f"node {node.metadata.name}"
    return ""


def _verdicts(found: Iterable[Reached]) -> list[str]:
    return list(dict.fromkeys(r.verdict for r in found))


def _share(of: Fraction, verdict: str) -> str:
    if not of:
        return ""
    return verdict if of == 1 else f"{percent(of)} {verdict}"


def percent(of: Fraction) -> str:
    """ "33.3 %"; exact where it is a whole number."""
    value = of * 100
    return f"{value.numerator} %" if value.denominator == 1 else f"{float(value):.4g} %"
