"""The pure half of nftables mode behind the seam that all dataplanes share."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from clusterip.dataplane.nftables import delta as deltas
from clusterip.dataplane.nftables.book import Book
from clusterip.dataplane.nftables.compile import Piece, compile_entry
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.delta import Delta, Installed
from clusterip.dataplane.nftables.outcomes import outcomes
from clusterip.dataplane.node import Host
from clusterip.services.route import Outcomes, Packet
from clusterip.services.table import Entry
from clusterip.services.tracker import Change


@dataclass(frozen=True, slots=True)
class NFTables:
    """`dataplane.base.Compiler` for nftables. `book` is what the kernel holds; a delta is one from there."""

    config: Config
    host: Host
    book: Book = field(default_factory=Book)

    def compile(self, entry: Entry) -> Piece:
        return compile_entry(entry, self.config)

    def load(self, pieces: Collection[Piece], seen: Installed) -> Delta:
        return deltas.load(Book.of(pieces), seen, self.config)

    def delta(self, changes: Iterable[Change[Piece]]) -> Delta:
        return deltas.delta(self.book.shift(changes))

    def outcomes(self, pieces: Collection[Piece], packet: Packet) -> Outcomes:
        return outcomes(pieces, self.config, packet, self.host)
