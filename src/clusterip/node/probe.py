"""What a row of probe results means. Pure: time and results come as arguments.

Source: Kubernetes docs, "Configure Liveness, Readiness and Startup Probes".
"""

from dataclasses import dataclass
from enum import Enum

from clusterip.model.objects import Probe

FIRST_LOOK = 0.05  # seconds from the first failed readiness probe to the second: doubling, up to the period


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


def delay(probe: Probe, kind: Kind, verdict: Verdict) -> float:
    """Seconds from the end of one probe to the beginning of the next.

    The period; but a container that has never passed its readiness probe is looked at sooner, else a server that needs
    a tenth of a second to start would be ready ten seconds later. It costs nothing: such a container is not ready
    anyway, whatever its failures add up to.
    """
    period = float(max(probe.period_seconds, 1))
    if kind is not Kind.READINESS or verdict.ever_ok:
        return period
    return float(min(FIRST_LOOK * 2 ** min(-verdict.streak - 1, 20), period))
