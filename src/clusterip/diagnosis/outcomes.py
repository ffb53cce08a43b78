"""The ends of a walk -> the outcomes people are told, and one verdict of them all."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from clusterip.diagnosis.answer import Outcome, Step, Verdict
from clusterip.diagnosis.packet import socket
from clusterip.diagnosis.stops import meaning
from clusterip.diagnosis.walk.branch import Branch, Condition, End, Fired, folded
from clusterip.diagnosis.walk.chain import Ended
from clusterip.diagnosis.walk.programs import Programs

_VERDICTS: dict[End, Verdict] = {End.DROP: "dropped", End.REJECT: "rejected", End.LOST: "unknown"}
_WORST: tuple[Verdict, ...] = ("unknown", "dropped", "rejected", "passed", "delivered")
NOT_REMEMBERED = "the client is not remembered"


class Reached(NamedTuple):
    """One outcome and the way there."""

    verdict: Verdict
    backend: str
    branch: Branch

    @property
    def remembered(self) -> bool:
        return any(holds for condition, holds in self.branch.when.items() if condition.kind == "affinity")

    @property
    def last(self) -> Fired | None:
        return self.branch.trail.fired if self.branch.trail else None


def reached(ended: Iterable[Ended]) -> tuple[list[Reached], list[Condition]]:
    """Equal outcomes as one: the likeliest first, those of a client that is remembered after the others. And what was
    taken for granted that would change them.
    """
    folded_once = [one for group in _grouped(ended).items() for one in _folded(*group)]
    granted = {c: None for one in folded_once for c, holds in one.branch.when.items() if c.kind == "assumed" and holds}
    groups: dict[_Key, list[Branch]] = {}
    for one in folded_once:
        if granted.keys().isdisjoint(c for c, holds in one.branch.when.items() if holds):
            when = {c: holds for c, holds in one.branch.when.items() if c.kind != "assumed"}
            groups.setdefault(_key(one), []).append(replace(one.branch, when=when))
    found = [one for group in groups.items() for one in _folded(*group)]
    return sorted(found, key=lambda r: (r.remembered, -r.branch.probability, r.backend)), list(granted)


_Key: TypeAlias = tuple[Verdict, str, bool, str]  # verdict, backend, masqueraded, the source at the end


def _grouped(ended: Iterable[Ended]) -> dict[_Key, list[Branch]]:
    groups: dict[_Key, list[Branch]] = {}
    for end, branch in ended:
        packet = branch.packet
        verdict = _VERDICTS.get(end) or ("delivered" if packet.destination_rewritten else "passed")
        rewritten = packet.destination_rewritten and verdict in ("delivered", "unknown")
        backend = socket(packet.destination, packet.destination_port) if rewritten else ""
        groups.setdefault(_key(Reached(verdict, backend, branch)), []).append(branch)
    return groups


def _key(one: Reached) -> _Key:
    source = one.branch.packet.source if one.verdict in ("delivered", "passed") else ""
    return one.verdict, one.backend, one.branch.packet.source_rewritten, source


def _folded(key: _Key, branches: Sequence[Branch]) -> list[Reached]:
    verdict, backend, _, _ = key
    alike = [replace(b, packet=branches[0].packet) for b in branches]
    return [Reached(verdict, backend, branch) for branch in folded(alike)]


def outcome(one: Reached, steps: tuple[Step, ...]) -> Outcome:
    branch = one.branch
    return Outcome(
        verdict=one.verdict,
        probability=branch.probability,
        probability_decimal=float(branch.probability),
        backend=one.backend,
        masquerade=branch.packet.source_rewritten,
        source=branch.packet.source,
        basis="longRun" if branch.long_run else "exact",
        when=tuple(told(branch.when)),
        reason=why(one),
        steps=steps,
    )


def told(when: dict[Condition, bool]) -> list[str]:
    """Conditions in words. That somebody is remembered here says enough; that he is nowhere is said once."""
    memories = [c for c in when if c.kind == "affinity"]
    kept = [c.yes for c in memories if when[c]] or ([NOT_REMEMBERED] if memories else [])
    return [*kept, *(c.yes if holds else c.no for c, holds in when.items() if c.kind != "affinity")]


def why(one: Reached) -> str:
    """In a few words, for one outcome."""
    fired = one.last
    match one.verdict:
        case "unknown":
            return one.branch.note
        case "dropped" | "rejected" if fired:
            where = " ".join(p for p in (fired.hook, fired.table, fired.chain) if p)
            rule = f" rule {fired.rule + 1}" if fired.rule >= 0 else ""
            place = f"{where}{rule}: {fired.text or fired.effect}"
            meant = meaning(fired)
            return f"{meant} ({place})" if meant else place
        case _:
            return ""


def steps(branch: Branch, programs: Programs) -> tuple[Step, ...]:
    """In the order in which they happened."""
    found: list[Step] = []
    trail = branch.trail
    while trail is not None:
        found.append(step(trail.fired, programs))
        trail = trail.earlier
    return tuple(reversed(found))


def step(fired: Fired, programs: Programs) -> Step:
    rule, file, line = programs.told(fired.program, fired.table, fired.chain, fired.rule)
    return Step(
        hook=fired.hook,
        table=f"{fired.program} {fired.table}" if fired.program.startswith("iptables-") else fired.table,
        chain=fired.chain,
        rule=rule or fired.text,
        effect=fired.effect,
        packet_before=fired.before,
        packet_after=fired.after,
        file=file,
        line=line,
    )


def verdict(found: Sequence[Reached]) -> Verdict:
    """The worst that may happen by chance; unknown where it hangs on something that is not known."""
    worlds: dict[frozenset[tuple[Condition, bool]], Verdict] = {}
    for one in found:
        world = frozenset((c, h) for c, h in one.branch.when.items() if c.kind != "affinity")
        worlds[world] = _worse(worlds.get(world, "delivered"), one.verdict)
    everywhere = worlds.get(frozenset(), "delivered")
    answers = {_worse(everywhere, v) for v in worlds.values()}
    return answers.pop() if len(answers) == 1 else "unknown"


def _worse(one: Verdict, two: Verdict) -> Verdict:
    return min(one, two, key=_WORST.index)


def share(found: Iterable[Reached], of: Callable[[Reached], bool]) -> Fraction:
    """Of new connections of a client that is not remembered, as far as nothing else is unknown."""
    return sum((r.branch.probability for r in found if of(r) and not r.remembered), Fraction(0))
