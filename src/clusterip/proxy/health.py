"""Is this proxy well: pure bookkeeping of what waits to be programmed, and the answers of /healthz and /livez.

It is unwell when, in any family, something has waited for twice the sync period and is not in the kernel yet.
All times are monotonic seconds; `now` is handed in. Source: kube-proxy 1.33 and later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from clusterip.model.objects import Node
from clusterip.model.status import Object
from clusterip.services.table import Family

AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler"
HEADERS = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
_NEVER = "0001-01-01T00:00:00Z"  # as Go writes a time that has not been set


@dataclass(frozen=True, slots=True)
class Answer:
    code: int  # 200 or 503
    body: Object


class Health:
    """Written by the loop, read by the servers; both in one event loop."""

    def __init__(self, families: Sequence[Family], sync_period: float) -> None:
        self._patience = 2 * sync_period
        self._updated: dict[Family, float | None] = dict.fromkeys(families)
        self._waiting: dict[Family, float] = {}  # since when something is not programmed
        self.node_eligible = True  # load balancers may send traffic here

    def serve(self, families: Sequence[Family], sync_period: float, now: float) -> None:
        """Another dataplane has taken over, which has all of these in the kernel."""
        self._patience = 2 * sync_period
        self._updated = dict.fromkeys(families, now)
        self._waiting.clear()

    def queued(self, family: Family, now: float) -> None:
        self._waiting.setdefault(family, now)

    def updated(self, family: Family, now: float) -> None:
        """All that was queued is in the kernel."""
        self._updated[family] = now
        self._waiting.pop(family, None)

    def healthy(self, now: float) -> bool:
        """True before the first sync, too: to start is to be well."""
        return all(self._well(family, now) for family in self._updated)

    def livez(self, now: float, wall: float) -> Answer:
        """`wall`: seconds since the epoch, at `now`."""
        return self._answer(now, wall, self.healthy(now))

    def healthz(self, now: float, wall: float) -> Answer:
        answer = self._answer(now, wall, self.healthy(now) and self.node_eligible)
        return Answer(answer.code, {**answer.body, "nodeEligible": self.node_eligible})

    def _well(self, family: Family, now: float) -> bool:
        return now - self._waiting.get(family, now) < self._patience

    def _answer(self, now: float, wall: float, well: bool) -> Answer:
        status = {
            family: {
                "lastUpdated": _text(wall if self._well(family, now) else _wall(last, now, wall)),
                "healthy": self._well(family, now),
            }
            for family, last in self._updated.items()
        }
        times = [last for last in self._updated.values() if last is not None]
        newest = _wall(max(times), now, wall) if times else None
        body = {
            "lastUpdated": _text(wall if well else newest),
            "currentTime": _text(wall),
            "healthy": self.healthy(now),
            "status": status,
        }
        return Answer(200 if well else 503, body)


def eligible(node: Node | None) -> bool:
    """Load balancers should not send traffic to a node that is gone, going, or about to be taken by the autoscaler."""
    if node is None or node.metadata.deletion_timestamp:
        return False
    return all(taint.key != AUTOSCALER_TAINT for taint in node.spec.taints or ())


def _wall(then: float | None, now: float, wall: float) -> float | None:
    return None if then is None else wall - (now - then)


def _text(seconds: float | None) -> str:
    if seconds is None:
        return _NEVER
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
