"""The pure half of IPVS mode behind the seam that all dataplanes share."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from clusterip.dataplane.ipvs import delta as deltas
from clusterip.dataplane.ipvs.book import Book, Seen
from clusterip.dataplane.ipvs.compile import Piece, compile_entry
from clusterip.dataplane.ipvs.config import Config
from clusterip.dataplane.ipvs.delta import Delta
from clusterip.dataplane.ipvs.outcomes import outcomes
from clusterip.dataplane.node import Host
from clusterip.services.route import Outcomes, Packet
from clusterip.services.table import Entry
from clusterip.services.tracker import Change


@dataclass(frozen=True, slots=True)
class IPVS:
    """`dataplane.base.Compiler` for IPVS. `book` is what the kernel holds; a delta is one from there."""

    config: Config
    host: Host
    book: Book = field(default_factory=Book)

    def compile(self, entry: Entry) -> Piece:
        return compile_entry(entry, self.config)

    def load(self, pieces: Collection[Piece], seen: Seen) -> Delta:
        return deltas.load(Book.of(pieces), seen, self.config)

    def delta(self, changes: Iterable[Change[Piece]]) -> Delta:
        return deltas.delta(self.book.shift(changes), self.config)

    def outcomes(self, pieces: Collection[Piece], packet: Packet) -> Outcomes:
        return outcomes(pieces, self.config, packet, self.host)
