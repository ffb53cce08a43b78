"""What the kernel told of a packet, beside what the model says of it. Pure.

Where the model leaves something open (a chance, something that is not known), it is asked again with what the kernel
did: a difference is then one of certainty, never of luck.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from clusterip.diagnosis.answer import Outcome, Step, Trace, Verdict
from clusterip.diagnosis.met import Met, Place, Told, met, told
from clusterip.diagnosis.outcomes import step
from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk.branch import Branch
from clusterip.diagnosis.walk.following import following
from clusterip.diagnosis.walked import Walked
from clusterip.rulesets.traced import Headers, Traced


class Difference(Struct, frozen=True, omit_defaults=True):
    """Where model and kernel part. A step that one of them does not have is None."""

    message: str
    modelled: Step | None = None
    observed: Step | None = None


class Observation(Struct, frozen=True, kw_only=True, rename="camel"):
    verdict: Verdict
    backend: str = ""  # "10.244.0.3:80": where its destination was rewritten to
    source: str = ""  # its source as it arrived; "": not seen
    steps: tuple[Step, ...] = ()  # rules that the packet met
    modelled: tuple[Step, ...] = ()  # the model's, with what the kernel drew
    difference: Difference | None = None  # None: model and kernel agree


class Captured(Struct, frozen=True, rename="camel"):
    """A packet of the flow, as it passed an interface."""

    place: str  # "client", "backend", and the network namespace
    text: str  # "10.244.1.5:41234 > 10.96.103.181:80 tcp SYN"
    milliseconds: float  # after the first one


class Live(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a packet sent for the purpose met. Goes with the modelled trace of the same packet."""

    answer: str  # what the client saw: "connected", "refused", "silence" ...
    milliseconds: float  # until then
    observation: Observation
    captured: tuple[Captured, ...] = ()
    connection: str = ""  # conntrack's entry for it; "": there is none
    missing: str = ""  # what could not be observed, and why


class LiveTrace(Trace, frozen=True, kw_only=True, rename="camel"):
    """A trace whose steps and verdict were observed; its outcomes and the way back are the model's."""

    live: Live


def live_trace(modelled: Trace, live: Live) -> LiveTrace:
    """`modelled` with what was observed in place of its own steps and verdict."""
    seen = live.observation
    fields = {name: getattr(modelled, name) for name in Trace.__struct_fields__}
    if not seen.steps and seen.verdict == "unknown":
        reason = live.missing or "the packet did not come by this node"
        unseen = {"verdict": "unknown", "reason": reason, "source": "observed", "steps": (), "reply": ()}
        return LiveTrace(**{**fields, **unseen}, live=live)
    told = {"verdict": seen.verdict, "reason": _sentence(seen, live), "source": "observed", "steps": seen.steps}
    return LiveTrace(**{**fields, **told}, live=live)


def _sentence(seen: Observation, live: Live) -> str:
    match seen.verdict:
        case "delivered":
            return f"to {seen.backend}" + (f", which sees {seen.source}" if seen.source else "") + f"; {live.answer}"
        case "passed":
            return f"no rule changed where it went; {live.answer}"
        case "unknown":
            return f"the socket was given {seen.backend}, and nothing was seen of what came of it; {live.answer}"
        case _:
            last = seen.steps[-1]
            return f"by {_where(last)}; {live.answer}"


def observe(
    walked: Walked, outcomes: Sequence[Outcome], events: Sequence[Traced], landed: Headers | None
) -> Observation:
    """`landed`: the packet as it was seen where it arrived, or as conntrack has it; None: it was not seen."""
    found = told(walked, events)
    rules = list(met(walked, found, landed))
    verdict, backend = _verdict(walked.packet, found, rules, landed)
    source = landed.source if landed else ""
    seen = Observation(verdict=verdict, backend=backend, source=source, steps=tuple(r.step for r in rules))
    if landed is None and not found:
        return seen
    ways = [_way(branch, walked) for branch in _ways(walked, found, landed)]
    difference, way = min(((_first_difference(way, rules), way) for way in ways), key=lambda pair: pair[0] is not None)
    if difference is None and not any(_allows(outcome, seen, walked.packet) for outcome in outcomes):
        difference = Difference(_told_outcome(seen, outcomes))
    return replace(seen, modelled=tuple(step for _, step in way), difference=difference)


def _ways(walked: Walked, found: Sequence[Told], landed: Headers | None) -> list[Branch]:
    last = landed or found[-1].event.headers
    hooks = following(walked.hooks, [(one.program, one.table, one.event) for one in found], last)
    from_node = walked.client.kind == "node"
    ended = hooks.from_node(walked.packet) if from_node else hooks.arriving(walked.packet)
    return [branch for _, branch in ended]


def _way(branch: Branch, walked: Walked) -> list[tuple[Place, Step]]:
    """The model's steps by rules. A rule that does two things is one."""
    found: list[tuple[Place, Step]] = []
    trail = branch.trail
    while trail is not None:
        fired = trail.fired
        place = Place(fired.hook, fired.program, fired.table, fired.chain, fired.rule)
        if fired.program and not (found and found[-1][0] == place):
            found.append((place, step(fired, walked.programs)))
        trail = trail.earlier
    return found[::-1]


def _first_difference(modelled: Sequence[tuple[Place, Step]], observed: Sequence[Met]) -> Difference | None:
    """The kernel tells of every rule that was met; the model only of those that did something."""
    position = 0
    for place, seen, acts in observed:
        if position < len(modelled) and modelled[position][0] == place:
            position += 1
        elif acts:
            expected = modelled[position][1] if position < len(modelled) else None
            ahead = f"goes on with {_where(expected)}" if expected else "has nothing more to do"
            return Difference(f"the kernel met {_where(seen)}, the model {ahead}", expected, seen)
    if position < len(modelled):
        missed = modelled[position][1]
        return Difference(f"the model meets {_where(missed)}, the kernel did not", missed)
    return None


def _where(one: Step) -> str:
    return f"{one.hook}, {one.table}, {one.chain}: {one.rule or one.effect}"


# --- what became of it ---


def _verdict(
    packet: Packet, found: Sequence[Told], rules: Sequence[Met], landed: Headers | None
) -> tuple[Verdict, str]:
    if landed is None and not found:
        return "unknown", ""
    last = landed or found[-1].event.headers
    at = (last.destination, last.destination_port)
    backend = socket(*at) if at != (packet.destination, packet.destination_port) else ""
    if landed is None and rules and _ends(found[-1].event, rules[-1].step):
        return ("rejected" if rules[-1].step.effect == "reject" else "dropped"), backend
    return ("delivered" if backend else "passed"), backend


def _ends(event: Traced, last: Step) -> bool:
    """Whether the last step is what stopped it: iptables-legacy does not tell verdicts."""
    if event.program == "nft" or event.kind == "policy":
        return event.verdict == "drop"
    return event.kind == "rule" and last.effect in ("drop", "reject")


def _allows(outcome: Outcome, seen: Observation, packet: Packet) -> bool:
    """Whether it may have been this outcome. What was not seen is no difference."""
    if outcome.verdict == "unknown":
        return True
    if outcome.verdict != seen.verdict:
        return False
    if seen.verdict in ("rejected", "dropped"):
        return True
    to = outcome.backend or (socket(packet.destination, packet.destination_port) if seen.backend else "")
    return to == seen.backend and (not outcome.source or not seen.source or outcome.source == seen.source)


def _told_outcome(seen: Observation, outcomes: Iterable[Outcome]) -> str:
    def words(verdict: Verdict, backend: str, source: str) -> str:
        return verdict + (f" to {backend}" if backend else "") + (f" from {source}" if source else "")

    possible = sorted({words(o.verdict, o.backend, o.source) for o in outcomes})
    return f"kernel: {words(seen.verdict, seen.backend, seen.source)}; model: {' or '.join(possible)}"
