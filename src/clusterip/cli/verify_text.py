"""A Verification in words: the verdict, then each difference with the packet that shows it."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import click

from clusterip.diagnosis.sentences import percent
from clusterip.diagnosis.verify.report import Difference, Verification

_MOST = 20
_COLOURS = {"equal": "green", "different": "red", "unproven": "yellow"}
_MEANS = {
    "missing": "is not in the kernel",
    "extra": "is in the kernel alone",
    "dropped": "is dropped",
    "rejected": "is refused",
    "stale-backend": "reaches a backend that the API does not have there",
    "missing-backend": "lacks a backend",
    "share": "has other shares",
    "masquerade": "is masqueraded otherwise",
    "affinity": "has another affinity",
    "verdict": "is treated otherwise",
}

T = TypeVar("T")


def lines(found: Verification, replaying: str = "", *, everything: bool = False) -> Iterator[str]:
    """`replaying`: the options that make `clusterip trace` read the same rules."""
    yield _verdict(found)
    for premise in found.premises:
        yield click.style(f"  given: {premise}", dim=True)
    for difference in _first(found.differences, everything):
        yield ""
        yield from _difference(difference, replaying)
    yield from _more(found.differences, everything, "differences")
    for unproven in _first(found.unproven, everything):
        yield ""
        yield f"{click.style('cannot prove', fg='yellow', bold=True)}  {unproven.object}"
        yield f"  {unproven.what}"
    yield from _more(found.unproven, everything, "of these")
    if found.others:
        yield ""
        yield "somebody else's rules rewrite, where no Service is:"
        yield from (f"  {other}" for other in _first(found.others, everything))
        yield from _more(found.others, everything, "of these")


def _verdict(found: Verification) -> str:
    verdict = click.style(found.verdict, bold=True, fg=_COLOURS[found.verdict])
    scope = f"{_count(found.services, 'Service port')}, {_count(found.frontends, 'frontend')}"
    match found.verdict:
        case "equal":
            return f"{verdict}  {scope}: for every packet the kernel does what the API says"
        case "different":
            return f"{verdict}  {scope}: {_count(len(found.differences), 'difference')}"
        case "unproven":
            return f"{verdict}  {scope}: no difference was found, but what the rules do is not known for all of them"


def _difference(one: Difference, replaying: str) -> Iterator[str]:
    name = one.object if one.object == one.frontend else f"{one.object}  {one.frontend}"
    kind = click.style(one.kind, fg="red", bold=True)
    means = _MEANS[one.kind]
    if one.kind == "extra" and one.object != one.frontend:
        means = "answers where the API says that it does not"
    yield f"{kind}  {name} {means}, for {percent(one.share)} of new connections from {one.clients}"
    yield f"  API     {one.api}"
    yield f"  kernel  {one.kernel}"
    yield click.style(f"  see     clusterip trace {one.witness.arguments}{replaying}", dim=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _first(found: Sequence[T], everything: bool) -> Sequence[T]:
    return found if everything else found[:_MOST]


def _more(found: Sequence[object], everything: bool, what: str) -> Iterator[str]:
    if not everything and len(found) > _MOST:
        yield ""
        yield f"and {len(found) - _MOST} more {what}; --all prints them"
