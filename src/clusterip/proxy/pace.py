"""When to sync and when to look for what others did. Pure: `now` is monotonic seconds, handed in.

Source: kube-proxy 1.34 and later.
"""

import math

DEEP_CHECK = 3600.0  # seconds between looks at the rules that are taken even if nobody seems to have written
GLANCE = 1.0  # seconds between glances at whether anybody has; at most, for the sync period may be shorter


class Pace:
    def __init__(self, min_period: float, period: float) -> None:
        """`min_period`: seconds from the end of one sync to the start of the next; `period`: from a failed sync to the
        next try if nothing else calls for one. Checks come more often than kube-proxy's, which start a program each."""
        self._min, self._period, self._glance = min_period, period, min(period, GLANCE)
        self._ended = -math.inf
        self._retry = math.inf
        self._check = math.inf  # there is nothing to check before the first sync

    def next_sync(self, pending: bool, fresh: bool) -> float:
        """When the next sync may start; inf: there is no need. `fresh`: something came since a failed sync."""
        if not pending:
            return math.inf
        allowed = self._ended + self._min
        return allowed if fresh or self._retry == math.inf else max(self._retry, allowed)

    def next_check(self) -> float:
        return self._check

    def synced(self, now: float) -> None:
        self._ended, self._retry = now, math.inf
        self._check = min(self._check, now + self._glance)

    def failed(self, now: float) -> None:
        self._ended, self._retry = now, now + self._period

    def checked(self, now: float) -> None:
        self._check = now + self._glance
