"""When what a slice says became true: the annotation from which latency is measured. Pure.

Source: conformance 3.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from clusterip.controllers.times import seconds
from clusterip.model.objects import Pod, Service

TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"


@dataclass(frozen=True, slots=True)
class Seen:
    """The moments that were known at the last sync, in seconds since the epoch."""

    service: float
    pods: Mapping[str, float] = field(default_factory=dict)  # pod -> its Ready condition's last transition


def seen(service: Service, pods: Iterable[Pod]) -> Seen:
    moments = {
        pod.metadata.name: seconds(condition.last_transition_time)
        for pod in pods
        for condition in pod.status.conditions
        if condition.type == "Ready"
    }
    return Seen(seconds(service.metadata.creation_timestamp), moments)


def trigger(before: Seen | None, now: Seen) -> float:
    """The earliest moment that is new since `before`; 0.0 if there is none."""
    if before is None:
        return now.service
    changed = [moment for pod, moment in now.pods.items() if moment and before.pods.get(pod) != moment]
    if before.service != now.service:
        changed.append(now.service)
    return min(changed, default=0.0)


def text(moment: float) -> str:
    """RFC 3339 with nine digits, as Go writes nanoseconds when there are any."""
    whole = datetime.fromtimestamp(moment, UTC)
    digits = f"{whole.microsecond:06d}".rstrip("0")
    return whole.strftime("%Y-%m-%dT%H:%M:%S") + (f".{digits}" if digits else "") + "Z"
