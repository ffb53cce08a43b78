"""What a row of probe results means. Pure: time and results come as arguments.

Source: Kubernetes docs, "Configure Liveness, Readiness and Startup Probes".
"""

from dataclasses import dataclass
from enum import Enum

from clusterip.model.objects import Probe

FIRST_LOOK = 0.05  # seconds from the first failed probe of a starting container to the second: doubling
SETTLING = 1.0  # seconds in which a container may be starting: no failure is held against it


class Kind(Enum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ok` is what counts now. It changes when `streak` results in a row have said otherwise."""

    ok: bool
    streak: int = 0  # results in a row: > 0 successes, < 0 failures
    ever_ok: bool = False  # one result at least was a success


def initial(kind: Kind) -> Verdict:
    """Before the first result: alive, but neither started nor ready."""
    return Verdict(ok=kind is Kind.LIVENESS)


def after(probe: Probe, verdict: Verdict, ok: bool) -> Verdict:
    """The verdict once one more result is in."""
    streak = max(verdict.streak, 0) + 1 if ok else min(verdict.streak, 0) - 1
    decided = streak >= max(probe.success_threshold, 1) if ok else -streak >= max(probe.failure_threshold, 1)
    return Verdict(ok if decided else verdict.ok, streak, verdict.ever_ok or ok)


def failed_for_good(probe: Probe, verdict: Verdict) -> bool:
    """Of a startup or liveness probe: the container must be killed."""
    return -verdict.streak >= max(probe.failure_threshold, 1)


def first_delay(probe: Probe, kind: Kind) -> float:
    """Seconds from the start of the container (or the success of its startup probe) to the first probe. A liveness
    probe can only do harm to a container that is starting."""
    return max(float(probe.initial_delay_seconds), SETTLING if kind is Kind.LIVENESS else 0.0)


def counts(kind: Kind, ok: bool, age: float) -> bool:
    """Whether a result counts that came `age` seconds after the first probe."""
    return ok or kind is not Kind.STARTUP or age >= SETTLING


def delay(probe: Probe, kind: Kind, verdict: Verdict, failures: int) -> float:
    """Seconds from the end of one probe to the beginning of the next; `failures`: how many there have been.

    The period; but a container that has never passed its readiness or startup probe is looked at sooner, else a server
    that needs a tenth of a second to start would be ready ten seconds later. It costs nothing: a readiness probe's
    failures change nothing before its first success, and a startup probe's do not count while it settles.
    """
    period = float(max(probe.period_seconds, 1))
    starting = not verdict.ever_ok and (kind is Kind.READINESS or (kind is Kind.STARTUP and verdict.streak == 0))
    return min(FIRST_LOOK * 2 ** min(failures - 1, 20), period) if starting else period
