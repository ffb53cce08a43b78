"""A Verification in words: the verdict, then each difference with the packet that shows it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

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


class Further(NamedTuple):
    """What makes other commands read the same: to be written behind them."""

    trace: str = ""  # and the packet
    doctor: str = ""


def lines(found: Verification, further: Further, *, everything: bool = False) -> Iterator[str]:
    yield _verdict(found)
    for premise in found.premises:
        yield click.style(f"  given: {premise}", dim=True)
    for difference in _first(found.differences, everything):
        yield ""
        yield from _difference(difference, further)
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
    if found.remarks:
        yield ""
        yield from (f"{click.style('remark', fg='yellow', bold=True)}  {said}" for said in found.remarks)
        yield click.style(f"  see     clusterip doctor{further.doctor}", dim=True)


def _verdict(found: Verification) -> str:
    verdict = click.style(found.verdict, bold=True, fg=_COLOURS[found.verdict])
    scope = f"{_count(found.services, 'Service port')}, {_count(found.frontends, 'frontend')}"
    match found.verdict:
        case "equal":
            who = "rules do" if found.remarks else "kernel does"  # what the host does besides is remarked on
            return f"{verdict}  {scope}: for every packet the {who} what the API says"
        case "different":
            return f"{verdict}  {scope}: {_count(len(found.differences), 'difference')}"
        case "unproven":
            return f"{verdict}  {scope}: no difference was found, but what the rules do is not known for all of them"


def _difference(one: Difference, further: Further) -> Iterator[str]:
    if one.kind == "program":
        yield from _program(one, further)
        return
    name = one.object if one.object == one.frontend else f"{one.object}  {one.frontend}"
    kind = click.style(one.kind, fg="red", bold=True)
    means = _MEANS[one.kind]
    if one.kind == "extra" and one.object != one.frontend:
        means = "answers where the API says that it does not"
    yield f"{kind}  {name} {means}, for {percent(one.share)} of new connections from {one.clients}"
    yield f"  API     {one.api}"
    yield f"  kernel  {one.kernel}"
    yield click.style(f"  see     clusterip trace {one.witness.arguments}{further.trace}", dim=True)


def _program(one: Difference, further: Further) -> Iterator[str]:
    """Of one that does not run at its hook."""
    kind = click.style(one.kind, fg="red", bold=True)
    yield f"{kind}  {one.object} does not run the proxy's: for {one.clients}, as at {one.frontend}"
    yield f"  API     {one.api}"
    yield f"  kernel  {one.kernel}"
    yield click.style(f"  see     clusterip doctor{further.doctor}", dim=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _first(found: Sequence[T], everything: bool) -> Sequence[T]:
    return found if everything else found[:_MOST]


def _more(found: Sequence[object], everything: bool, what: str) -> Iterator[str]:
    if not everything and len(found) > _MOST:
        yield ""
        yield f"and {len(found) - _MOST} more {what}; --all prints them"
