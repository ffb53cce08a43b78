"""From one dataplane to another while connections go on: the new one is complete, and proved so, before the old one
goes. The loop owns all of it.

    loading      the new one is written beside the old, which is in force and followed further
    verifying    it is read back, all of it, and held against what was to be written
    withdrawing  the new one serves; what is left of the old is taken away (`leftovers`)

What fails before the last step takes the new one away again, and the old one has never been gone.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from clusterip.client.view import View
from clusterip.errors import Unavailable
from clusterip.model.objects import Service
from clusterip.model.status import Object
from clusterip.proxy.parts import FamilyParts
from clusterip.services.resolve import NodeContext
from clusterip.services.tracker import ServiceName, ServiceTable

# Modes that write in the same places. The one that comes writes over the one that goes, as a proxy does that starts;
# from then on the one that goes must not write any more.
_TOGETHER = (frozenset({"nftables", "ebpf"}), frozenset({"iptables", "ipvs"}))


class NotProved(Unavailable):
    """What was read back of the new dataplane is not what was written."""


@dataclass(frozen=True, slots=True)
class Target:
    """The dataplane that is to take over."""

    mode: str
    families: tuple[FamilyParts, ...]
    min_sync_period: float  # seconds
    sync_period: float  # seconds
    counters: tuple[str, ...] = ()  # of nfacct, for the metrics


def share_places(one: str, other: str) -> bool:
    """The two modes write in the same places, or are one. Pure."""
    return one == other or any({one, other} <= modes for modes in _TOGETHER)


class Joining:
    """A target on its way, with the service table as it sees it."""

    def __init__(self, target: Target, view: View, context: NodeContext) -> None:
        self.target = target
        self.table = ServiceTable([f.proxier.family for f in target.families])
        self.note(every_service(view), view, context)

    def __repr__(self) -> str:
        return f"Joining({self.target.mode} {[f.proxier for f in self.target.families]})"

    @property
    def pending(self) -> bool:
        return any(f.proxier.pending for f in self.target.families)

    def note(self, names: Iterable[ServiceName], view: View, context: NodeContext) -> None:
        changes = self.table.update(names, view, context)
        for family in self.target.families:
            family.proxier.note(changes)

    def load_next(self) -> None:
        """What all rules rest on has changed."""
        for family in self.target.families:
            family.proxier.load_next()

    async def sync(self) -> None:
        """Raises ClusterIPError."""
        for family in self.target.families:
            if family.proxier.pending:
                await family.proxier.sync()

    async def verify(self) -> None:
        """Raises NotProved, with the first difference; ClusterIPError if nothing can be read."""
        for family in self.target.families:
            proxier = family.proxier
            differences = await proxier.check(deep=True)
            if differences:
                more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
                raise NotProved(f"{self.target.mode} ({proxier.family}): read back otherwise: {differences[0]}{more}")
            wanted = {entry.key: entry for entry in self.table if entry.family == proxier.family}
            if not proxier.pending and proxier.entries != wanted:
                raise NotProved(f"{self.target.mode} ({proxier.family}): {len(proxier.entries)} Service ports written, "
                                f"{len(wanted)} wanted")  # fmt: skip


class Report:
    """What `clusterip status` and `clusterip mode` tell of the last change of dataplanes."""

    def __init__(self, number: int, before: str, after: str) -> None:
        self.number = number  # of changes since the process began, tried ones too
        self.error = ""
        self.hint = ""
        self._before, self._after = before, after
        self._phase = ""
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Report({self._before} -> {self._after}: {self._phase})"

    def enter(self, phase: str) -> None:
        """ "loading", "verifying", "withdrawing", then "done" or "failed"."""
        now = time.monotonic()
        if self._phase:
            self._seconds[self._phase] = now - self._began
        self._phase, self._began = phase, now

    def document(self) -> Object:
        return {
            "number": self.number,
            "from": self._before,
            "to": self._after,
            "phase": self._phase,
            "seconds": {phase: round(seconds, 3) for phase, seconds in self._seconds.items()},
            "error": self.error,
            "hint": self.hint,
        }


def every_service(view: View) -> set[ServiceName]:
    return {ServiceName(s.metadata.namespace, s.metadata.name) for s in view.list(Service)}
