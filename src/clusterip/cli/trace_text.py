"""A Trace as a narrow tree: a line a hook, the rule that fired, what changed, and last the verdict in a sentence."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby

import click

from clusterip.diagnosis.answer import Outcome, OverFamily, Step, Trace, Verdict
from clusterip.diagnosis.findings import Finding, Level
from clusterip.diagnosis.sentences import percent
from clusterip.services.table import Family

_COLOURS: dict[Verdict, str] = {
    "delivered": "green",
    "passed": "yellow",
    "rejected": "red",
    "dropped": "red",
    "unknown": "yellow",
}
_LEVELS: dict[Level, tuple[str, str]] = {"E": ("error", "red"), "W": ("warning", "yellow"), "I": ("note", "cyan")}
_HOOK = 12  # columns
_MOST = 16  # outcomes told one by one; the rest is summed up
_QUIET = ("jump ", "goto ")
_EVEN = Fraction(1, 2**20)


def lines(answer: Trace, width: int | None = None) -> Iterator[str]:
    """`width` columns at most for each rule; None: as long as it is."""
    name = f"  service {answer.service}" if answer.service else ""
    yield click.style(str(answer.packet), bold=True) + name
    shown = _telling(answer)
    yield from _tree(shown.steps if shown else answer.steps, width)
    if len(answer.outcomes) > 1 or any(o.when for o in answer.outcomes):
        yield ""
        yield _heading(answer, shown)
        yield from _outcomes(answer.outcomes)
    if answer.reply:
        yield ""
        yield "the answer"
        yield from _tree(answer.reply, width)
    for finding in answer.findings:
        yield ""
        yield from _finding(finding)
    yield ""
    if not answer.other_families:
        yield _verdict(answer)
        return
    yield f"{_family(answer)}  {_verdict(answer)}"
    for other in answer.other_families:
        way = click.style(f"  (--family {other.family} shows the way)", dim=True)
        yield f"{other.family}  {_verdict(other)}{way}"


def _verdict(answer: Trace | OverFamily) -> str:
    verdict = click.style(answer.verdict, bold=True, fg=_COLOURS[answer.verdict])
    reason = answer.reason.removeprefix(answer.verdict).lstrip(" :;")
    return f"{verdict}  {reason}" if reason else verdict


def _family(answer: Trace) -> Family:
    return "IPv6" if answer.packet.ipv6 else "IPv4"


def _telling(answer: Trace) -> Outcome | None:
    """The outcome whose way is shown: the likeliest of those that the verdict is of; None: a way that was observed."""
    if answer.source == "observed" or not answer.outcomes:
        return None
    return next((o for o in answer.outcomes if o.verdict == answer.verdict), answer.outcomes[0])


def _heading(answer: Trace, shown: Outcome | None) -> str:
    if shown is None:
        return "what the model has as possible"
    if len(answer.outcomes) == 1:
        return "outcome"
    which = "the first" if shown is answer.outcomes[0] else f"the first that is {shown.verdict}"
    return f"all outcomes; the way of {which} is shown"


def _tree(steps: Sequence[Step], width: int | None) -> Iterator[str]:
    """A line for each hook in turn; below it the way to the rule that decided, and the rule."""
    passed = [(hook, list(inside)) for hook, inside in groupby(steps, key=lambda s: s.hook)]
    for number, (hook, inside) in enumerate(passed):
        last = number == len(passed) - 1
        head, *below = _hook(hook, inside)
        yield ("└ " if last else "├ ") + head
        yield from (
            click.style(_cut(f"{' ' if last else '│'} {'':<{_HOOK}} {line}", width), dim=True) for line in below
        )


def _hook(hook: str, inside: Sequence[Step]) -> list[str]:
    told = [s for s in inside if not s.effect.startswith(_QUIET)]
    effects = [e for s in told if (e := _effect(s))]
    found = [f"{hook:<{_HOOK}} {', '.join(effects) or 'passes'}"]
    decided = next((s for s in reversed(told) if s.rule), None)
    if decided:
        place = f" ({decided.file.rpartition('/')[2]}:{decided.line})" if decided.line else ""
        found += [f"{_way(inside, decided)}{place}"]
        found += [decided.rule] if decided.chain else []
    return found


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def _effect(step: Step) -> str:
    """What changed, in bold."""
    if step.effect == "pass":
        return ""
    one, other = step.packet_before, step.packet_after
    changed = one != other and not step.effect.startswith(("mark", "ct mark"))
    stopped = step.effect.split()[0] in ("drop", "reject", "blackhole", "unreachable", "prohibit")
    return click.style(step.effect, bold=changed or stopped, fg="red" if stopped else None)


def _way(inside: Sequence[Step], decided: Step) -> str:
    """The chains that led to the rule: "nat KUBE-SERVICES > KUBE-SVC-... > KUBE-SEP-...". The hook's own goes without
    saying.
    """
    chains = [decided.chain]
    before = list(inside[: inside.index(decided)])
    for step in reversed(before):
        if step.effect in (f"jump {chains[0]}", f"goto {chains[0]}"):
            chains.insert(0, step.chain)
    return f"{decided.table} {' > '.join(chains[1:] or chains)}".strip()


def _outcomes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The same conditions under one heading."""
    for when, alike in groupby(outcomes, key=lambda o: o.when):
        if when:
            yield f"  if {' and '.join(when)}:"
        rows = list(alike)
        for one in rows[:_MOST]:
            yield f"  {_share(one, rows):>10}  {_row(one)}"
        if len(rows) > _MOST:
            rest = rows[_MOST:]
            total = sum((o.probability for o in rest), Fraction(0))
            least, most = rest[-1].probability, rest[0].probability
            yield f"  {percent(total):>10}  {len(rest)} more, {percent(least)} to {percent(most)} each"


def _share(one: Outcome, alike: Sequence[Outcome]) -> str:
    """1/3 where that is what the kernel's grid of 2**-31 means."""
    count = len(alike)
    if abs(one.probability - Fraction(1, count)) < _EVEN:
        return f"1/{count}" if count > 1 else "always"
    return percent(one.probability) if one.probability.denominator > 1000 else str(one.probability)


def _row(one: Outcome) -> str:
    verdict = click.style(one.verdict, fg=_COLOURS[one.verdict])
    target = f"{one.backend}" if one.backend else ""
    seen = f"from {one.source or 'the node'}, masqueraded" if one.masquerade else ""
    basis = "(over many connections)" if one.basis == "longRun" else ""
    return "  ".join(p for p in (verdict, target, seen, one.reason, basis) if p)


def _finding(finding: Finding) -> Iterator[str]:
    level, colour = _LEVELS[finding.level]
    cost = f" ({percent(finding.share)} of new connections)" if finding.share else ""
    yield f"{click.style(level, fg=colour, bold=True)} {finding.id}: {finding.object}: {finding.message}{cost}"
    for evidence in finding.evidence:
        yield click.style(f"  {evidence}", dim=True)
    if finding.remedy:
        yield f"  do: {finding.remedy}"
