"""What a kernel's trace tells, in the model's terms: which of its programs' rules were met, and what they did. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from clusterip.diagnosis.answer import Step
from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk.iptables import IptablesTable
from clusterip.diagnosis.walked import Walked
from clusterip.rulesets.traced import Headers, Traced

# What does something to the packet, or ends its way through a table; anything else leaves no step in the model.
_TARGETS = frozenset({"ACCEPT", "DROP", "REJECT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "MARK"})
_UNKNOWN = ", which is not among the rules that were read"
_DECIDES = frozenset({"accept", "drop", "stolen", "queue"})
_TARGET = re.compile(r" -[jg] (\S+)")
_ALTERS = re.compile(r"\bmeta mark set\b")


class Place(NamedTuple):
    hook: str
    program: str
    table: str
    chain: str
    rule: int  # its index; -1: the chain's policy, or a rule that was gone when it was looked for


class Told(NamedTuple):
    event: Traced
    program: str  # and the table: as the model's rules call themselves
    table: str

    @property
    def place(self) -> Place:
        rule = -1 if self.event.rule is None else self.event.rule
        return Place(self.event.hook, self.program, self.table, self.event.chain, rule)


class Met(NamedTuple):
    place: Place
    step: Step
    acts: bool  # whether the model must have such a step, too


def told(walked: Walked, events: Sequence[Traced]) -> list[Told]:
    return [_cleared(walked, Told(event, *_program(walked, event))) for event in events]


def _program(walked: Walked, event: Traced) -> tuple[str, str]:
    """Which of the model's programs has the event's table, and how it is called there."""
    own = "iptables-legacy" if event.program == "legacy" else "iptables-nft"
    if event.family != "inet":
        for name in (own, "iptables"):
            if (name, event.table) in walked.programs.tables:
                return name, event.table
    return (own, event.table) if event.program == "legacy" else ("nft", f"{event.family} {event.table}")


def _cleared(walked: Walked, one: Told) -> Told:
    """iptables-legacy tells of rules without a match as if they were the end of their chain, and no verdicts."""
    event, program, name = one
    if event.program != "legacy" or event.kind == "rule" or event.rule is None:
        return one
    table = walked.programs.tables.get((program, name))
    if isinstance(table, IptablesTable) and event.rule < len(table.rules.rules(event.chain)):
        return one._replace(event=replace(event, kind="rule"))
    bases = walked.hooks.chains.get(event.hook, ())
    place = (program, name, event.chain)
    policy = next((b.policy for b in bases if (b.rules.program, b.rules.table, b.chain) == place), "accept")
    return one._replace(event=replace(event, verdict=policy if event.kind == "policy" else "", rule=None))


def met(walked: Walked, found: Sequence[Told], landed: Headers | None) -> Iterator[Met]:
    """Every rule that the packet met, and the policy that dropped it. `landed`: the packet as it arrived."""
    mark = 0
    for number, one in enumerate(found):
        event = one.event
        later = found[number + 1].event if number + 1 < len(found) else None
        before = _packet(event, event.mark if event.program == "legacy" else mark)
        mark = later.mark if later and event.program == "legacy" else event.mark
        if event.kind == "return" or (event.kind == "policy" and event.verdict != "drop"):
            continue
        headers = later.headers if later else landed or event.headers
        after = replace(before, mark=mark, **_rewritten(event.headers, headers))
        step = _step(walked, one, before, after)
        yield Met(one.place, step, _acts(step) or step.rule.endswith(_UNKNOWN))


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
    names = ["source", "destination"] + ([] if "icmp" in now.protocol else ["source_port", "destination_port"])
    return {name: getattr(later, name) for name in names}


def _step(walked: Walked, one: Told, before: Packet, after: Packet) -> Step:
    event = one.event
    try:
        text, file, line = walked.programs.told(one.program, one.table, event.chain, one.place.rule)
    except (KeyError, IndexError):  # a chain or rule that the model's rules do not have
        text, file, line = "", "", 0
    if event.kind == "policy":
        text = "policy drop"
    elif not text:
        text = f"rule {one.place.rule + 1}{_UNKNOWN}" if one.place.rule >= 0 else f"a rule that is gone{_UNKNOWN}"
    return Step(
        hook=event.hook,
        table=f"{one.program} {one.table}" if one.program.startswith("iptables-") else one.table,
        chain=event.chain,
        rule=text,
        effect=_effect(event, text, before, after),
        packet_before=before,
        packet_after=after,
        file=file,
        line=line,
    )


def _effect(event: Traced, text: str, before: Packet, after: Packet) -> str:
    """A word or two, as the model has them."""
    target = _target(text)
    if event.kind == "policy":
        return "drop"
    if target == "REJECT" or (not target and re.search(r"\breject\b", text)):
        return "reject"
    if (before.destination, before.destination_port) != (after.destination, after.destination_port):
        return f"dnat {socket(after.destination, after.destination_port)}"
    if before.source != after.source:
        return f"snat {after.source}"
    if before.mark != after.mark:
        return f"mark {after.mark:#x}"
    return event.verdict or (target.lower() if target in _TARGETS | {"RETURN"} else target) or "continue"


def _acts(step: Step) -> bool:
    if step.effect in _DECIDES or step.effect == "reject":
        return True
    if step.rule.startswith("-A "):
        return _target(step.rule) in _TARGETS
    return bool(_ALTERS.search(step.rule))


def _target(text: str) -> str:
    """Of a rule of iptables; "": it has none, or is nft's."""
    found = _TARGET.search(text) if text.startswith("-A ") else None
    return found[1] if found else ""
