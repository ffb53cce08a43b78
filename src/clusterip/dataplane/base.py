"""What every dataplane can do. Three pure halves and two that touch the kernel; a verifier needs only the pure ones."""

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from clusterip.services.route import Outcomes, Packet
from clusterip.services.table import Entry
from clusterip.services.tracker import Change

P = TypeVar("P")  # a piece: all that one entry puts into the kernel
D_co = TypeVar("D_co", covariant=True)  # a delta: ordered kernel changes
D_contra = TypeVar("D_contra", contravariant=True)
S_co = TypeVar("S_co", covariant=True)  # what was seen in the kernel
S_contra = TypeVar("S_contra", contravariant=True)


class Compiler(Protocol[P, S_contra, D_co]):
    """Pure. For one node and one family, whose configuration it holds."""

    def compile(self, entry: Entry) -> P:
        """Equal entries give equal pieces, down to the byte."""
        ...

    def load(self, pieces: Collection[P], seen: S_contra) -> D_co:
        """From whatever is in the kernel to exactly `pieces`."""
        ...

    def delta(self, changes: Iterable[Change[P]]) -> D_co:
        """Only what changed. Every prefix of it leaves connections that are not concerned alone; one that is
        concerned meets its old backends or its new ones, never a gap. A change of nothing gives an empty delta."""
        ...

    def outcomes(self, pieces: Collection[P], packet: Packet) -> Outcomes:
        """What becomes of a packet where `pieces` are installed. Held against `services.route`."""
        ...


class Kernel(Protocol[S_co, D_contra]):
    """Edge. For one node and one family."""

    async def apply(self, delta: D_contra, /) -> None:
        """Raises ClusterIPError if the kernel refuses; then `load` from what `observe` gives is what heals."""
        ...

    async def observe(self) -> S_co:
        """What of ours is in the kernel now; only at start, after a failure, and to verify."""
        ...
