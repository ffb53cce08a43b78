"""A Diagnosis for somebody at three in the morning: the worst first, what shows it, and what to do."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import click

from clusterip.diagnosis.doctor import Diagnosis
from clusterip.diagnosis.findings import Finding, Level
from clusterip.rulesets.evidence import Problem

_LEVELS: dict[Level, tuple[str, str]] = {"E": ("ERROR", "red"), "W": ("WARN", "yellow"), "I": ("NOTE", "cyan")}
_WIDE = 100  # columns of a paragraph where nothing else bounds it
_INDENT = 6
_OF_AN_ID = 5  # findings that are told one by one
_SHOWN = 4  # pieces of evidence of one finding


def lines(
    diagnosis: Diagnosis,
    width: int | None = None,
    problems: Sequence[Problem] = (),
    *,
    verbose: bool = False,
    moving: bool = False,
) -> Iterator[str]:
    """`width` columns at most; None: paragraphs are wrapped, what is quoted or can be typed stays in one line.
    `moving`: the findings are of a move, and no faults."""
    if verbose:
        for one in diagnosis.inputs:
            place = f"{one.file}:{one.line}" if one.line > 1 else one.file
            yield f"{place}: {one.kind}, {one.facts} {'fact' if one.facts == 1 else 'facts'}"
        yield from (str(problem) for problem in problems)
        yield ""
    told = [f for f in diagnosis.findings if f.id != "incomplete-input"]
    counts: Counter[str] = Counter()
    for finding in told:
        counts[finding.id] += 1
        if counts[finding.id] <= _OF_AN_ID:
            yield from _finding(finding, width)
            yield ""
    for id_, count in counts.items():
        if count > _OF_AN_ID:
            yield f"and {count - _OF_AN_ID} more of {click.style(id_, bold=True)}; -o json has them all"
    yield _summary(told, moving=moving)
    if diagnosis.missing:
        yield ""
        yield "To say more, give also:"
        for lacking in diagnosis.missing:
            yield _cut(f"  {lacking.command}", width)
            yield click.style(_cut(f"      {lacking.why}", width), dim=True)
    unread = next((f for f in diagnosis.findings if f.id == "incomplete-input" and f.evidence), None)
    if unread and not verbose:
        yield ""
        yield f"Not all could be read (-v names it), first {unread.evidence[0]}"


def _finding(finding: Finding, width: int | None) -> Iterator[str]:
    word, colour = _LEVELS[finding.level]
    cost = f"  {percent(finding.share)} of new connections" if finding.share and finding.level != "I" else ""
    head = click.style(f"{word:<{_INDENT}}", fg=colour, bold=True)
    yield f"{head}{click.style(finding.id, bold=True)}  {finding.object}{cost}"
    margin = " " * _INDENT
    columns = min(width or _WIDE, _WIDE)
    yield from textwrap.wrap(
        finding.message,
        columns,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for evidence in finding.evidence[:_SHOWN]:
        yield click.style(_cut(f"{margin}| {evidence}", width), dim=True)
    if len(finding.evidence) > _SHOWN:
        yield click.style(f"{margin}| and {len(finding.evidence) - _SHOWN} more", dim=True)
    if finding.remedy:
        yield f"{margin}{click.style('do:', fg='green')} {finding.remedy}"


def percent(share: Fraction) -> str:
    """Whole percents as such, others with what can be told apart."""
    value = share * 100
    return f"{value.numerator} %" if value.denominator == 1 else f"{float(value):.4g} %"


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def _summary(findings: Sequence[Finding], *, moving: bool) -> str:
    counts = Counter(f.level for f in findings)
    words: dict[Level, str] = {"E": "error", "W": "warning", "I": "note"}
    found = [(counts[level], word) for level, word in words.items() if counts[level]]
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in found]
    if moving:
        return click.style("what the move changes: ", bold=True) + (", ".join(parts) or "nothing that shows here")
    if not counts["E"]:
        return ", ".join([click.style("nothing is broken", fg="green", bold=True) + " in what was given", *parts])
    return click.style(", ".join(parts), bold=True)
