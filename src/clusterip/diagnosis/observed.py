"""What the kernel told of a packet, beside what the model says of it. Pure.

Where the model leaves something open (a chance, something that is not known), it is asked again with what the kernel
did: a difference is then one of certainty, never of luck.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace as changed

from clusterip.diagnosis.answer import Outcome, Step, Verdict
from clusterip.diagnosis.outcomes import steps as modelled_steps
from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk.chain import Ended
from clusterip.diagnosis.walk.following import following
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.programs import Programs
from clusterip.diagnosis.walked import Walked
from clusterip.rulesets.traced import Headers, Traced

# What does something to the packet, or ends its way through a table; anything else leaves no step in the model.
_TARGETS = frozenset(
    {"ACCEPT", "DROP", "REJECT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "MARK", "CONNMARK", "CT", "NOTRACK"}
)
_DECIDES = frozenset({"accept", "drop", "stolen", "queue"})
_TARGET = re.compile(r" -[jg] (\S+)")
_ALTERS = re.compile(r"\b(?:meta|ct) mark set\b|\bnotrack\b")


class Difference(Struct, frozen=True, omit_defaults=True):
    """Where model and kernel part. A step that one of them does not have is None."""

    message: str
    modelled: Step | None = None
    observed: Step | None = None


class Observation(Struct, frozen=True, kw_only=True, rename="camel"):
    verdict: Verdict
    backend: str = ""  # "10.244.0.3:80": where its destination was rewritten to
    source: str = ""  # its source as it left; "": not seen
    steps: tuple[Step, ...] = ()  # rules that the packet met
    modelled: tuple[Step, ...] = ()  # the model's, with what the kernel drew
    difference: Difference | None = None  # None: model and kernel agree

    @property
    def agrees(self) -> bool:
        return self.difference is None


def observe(
    walked: Walked, outcomes: Sequence[Outcome], events: Sequence[Traced], landed: Headers | None
) -> Observation:
    """`landed`: the packet as it was seen where it arrived, or as conntrack has it; None: it was not seen."""
    steps = kernel_steps(walked.programs, events, landed)
    verdict, backend = _verdict(walked.packet, events, steps, landed)
    seen = Observation(verdict=verdict, backend=backend, source=landed.source if landed else "", steps=steps)
    if not events:
        return seen
    hooks = following(
        walked.hooks, [(*_program(walked.programs, event), event) for event in events], landed or events[-1].headers
    )
    ways = [modelled_steps(branch, walked.programs) for _, branch in _ended(hooks, walked)]
    compared = [(_first_difference(way, steps), way) for way in ways]
    difference, way = min(compared, key=lambda c: c[0] is not None)
    if difference is None and not any(_allows(outcome, seen, walked.packet) for outcome in outcomes):
        difference = Difference(_told_outcome(seen, outcomes))
    return changed(seen, modelled=way, difference=difference)


def _ended(hooks: Hooks, walked: Walked) -> list[Ended]:
    return hooks.from_node(walked.packet) if walked.client.kind == "node" else hooks.arriving(walked.packet)


# --- the kernel's steps ---


def kernel_steps(programs: Programs, events: Sequence[Traced], landed: Headers | None = None) -> tuple[Step, ...]:
    """Every rule that the packet met, and the policy that dropped it."""
    found: list[Step] = []
    mark = 0
    for number, event in enumerate(events):
        before = _packet(event, mark)
        later = events[number + 1].headers if number + 1 < len(events) else landed or event.headers
        mark = event.mark if event.program == "nft" or not mark else mark
        following = events[number + 1] if number + 1 < len(events) else None
        if event.program == "legacy" and following and following.program == "legacy":
            mark = following.mark
        if event.kind == "return" or (event.kind == "policy" and event.verdict != "drop"):
            continue
        after = changed(before, mark=mark, **_rewritten(event.headers, later))
        found.append(_step(programs, event, before, after))
    return tuple(found)


def _step(programs: Programs, event: Traced, before: Packet, after: Packet) -> Step:
    program, table = _program(programs, event)
    rule = -1 if event.rule is None else event.rule
    text, file, line = programs.told(program, table, event.chain, rule)
    if event.kind == "policy":
        text = "policy drop"
    return Step(
        hook=event.hook,
        table=f"{program} {table}" if program.startswith("iptables-") else table,
        chain=event.chain,
        rule=text,
        effect=_effect(event, text, before, after),
        packet_before=before,
        packet_after=after,
        file=file,
        line=line,
    )


def _program(programs: Programs, event: Traced) -> tuple[str, str]:
    """Which of the model's programs has the event's table."""
    own = "iptables-legacy" if event.program == "legacy" else "iptables-nft"
    if event.program == "nft" and event.family == "inet":
        return "nft", f"inet {event.table}"
    for name in (own, "iptables"):
        if (name, event.table) in programs.tables:
            return name, event.table
    return (own, event.table) if event.program == "legacy" else ("nft", f"{event.family} {event.table}")


def _packet(event: Traced, mark: int) -> Packet:
    headers = event.headers
    icmp = "icmp" in headers.protocol  # whose identifier is no port
    return Packet(
        protocol=headers.protocol,
        source=headers.source,
        destination=headers.destination,
        source_port=0 if icmp else headers.source_port,
        destination_port=headers.destination_port,
        in_interface=event.in_interface,
        out_interface=event.out_interface,
        mark=mark,
    )


def _rewritten(now: Headers, later: Headers) -> dict[str, str | int]:
    return {
        name: getattr(later, name)
        for name in ("source", "destination", "source_port", "destination_port")
        if getattr(now, name) != getattr(later, name) and ("port" not in name or "icmp" not in now.protocol)
    }


def _effect(event: Traced, text: str, before: Packet, after: Packet) -> str:
    """A word or two, as the model has them."""
    target = _TARGET.search(text)
    if event.kind == "policy":
        return "drop"
    if "REJECT" in (target[1] if target else "") or re.search(r"\breject\b", text):
        return "reject"
    if (before.destination, before.destination_port) != (after.destination, after.destination_port):
        return f"dnat {socket(after.destination, after.destination_port)}"
    if before.source != after.source:
        return f"snat {after.source}"
    if before.mark != after.mark:
        return f"mark {after.mark:#x}"
    if event.verdict:
        return event.verdict
    return (target[1] if target[1] not in _TARGETS else target[1].lower()) if target else "continue"


# --- beside each other ---


def _first_difference(modelled: Sequence[Step], observed: Sequence[Step]) -> Difference | None:
    """The kernel tells of every rule that was met; the model only of those that did something."""
    waiting = [step for step in modelled if step.chain]
    waiting = [step for number, step in enumerate(waiting) if not number or not _same(step, waiting[number - 1])]
    position = 0
    for step in observed:
        if position < len(waiting) and _same(waiting[position], step):
            position += 1
        elif _acts(step):
            expected = waiting[position] if position < len(waiting) else None
            return Difference(f"the kernel met {_where(step)}, the model {_or_nothing(expected)}", expected, step)
    if position < len(waiting):
        missed = waiting[position]
        return Difference(f"the model meets {_where(missed)}, the kernel did not", missed)
    return None


def _same(one: Step, other: Step) -> bool:
    return (one.hook, one.table, one.chain, one.rule) == (other.hook, other.table, other.chain, other.rule)


def _acts(step: Step) -> bool:
    """Whether the model must have such a step, too."""
    if step.effect in _DECIDES or step.effect == "reject":
        return True
    target = _TARGET.search(step.rule)
    if target:
        return target[1] in _TARGETS and (target[1] != "CT" or "--notrack" in step.rule)
    return bool(_ALTERS.search(step.rule)) and not step.rule.startswith("-A ")


def _where(step: Step) -> str:
    return f"{step.hook}, {step.table}, {step.chain}: {step.rule or step.effect}"


def _or_nothing(step: Step | None) -> str:
    return f"goes on with {_where(step)}" if step else "has nothing more to do"


# --- what became of it ---


def _verdict(
    packet: Packet, events: Sequence[Traced], steps: Sequence[Step], landed: Headers | None
) -> tuple[Verdict, str]:
    if landed is None and not events:
        return "unknown", ""
    last = landed or events[-1].headers
    at = (last.destination, last.destination_port)
    backend = socket(*at) if at != (packet.destination, packet.destination_port) else ""
    if landed is None and steps and _ends(events[-1], steps[-1]):
        return ("rejected" if steps[-1].effect == "reject" else "dropped"), backend
    return ("delivered" if backend else "passed"), backend


def _ends(event: Traced, step: Step) -> bool:
    """Whether the last step is what stopped it: iptables-legacy does not tell verdicts."""
    if event.program == "nft":
        return event.verdict == "drop"
    return event.kind != "return" and step.effect in ("drop", "reject")


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
