"""The pure half of iptables mode behind the seam that all dataplanes share."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from clusterip.dataplane.iptables import delta as deltas
from clusterip.dataplane.iptables.compile import Piece, compile_entry
from clusterip.dataplane.iptables.config import Config
from clusterip.dataplane.iptables.delta import Delta, Installed, Variant
from clusterip.dataplane.iptables.outcomes import Host, outcomes
from clusterip.services.route import Outcomes, Packet
from clusterip.services.table import Entry
from clusterip.services.tracker import Change


@dataclass(frozen=True, slots=True)
class IPTables:
    """`dataplane.base.Compiler` for iptables."""

    config: Config
    host: Host
    variant: Variant = Variant.NFT

    def compile(self, entry: Entry) -> Piece:
        return compile_entry(entry, self.config)

    def load(self, pieces: Collection[Piece], seen: Installed) -> Delta:
        return deltas.load(pieces, seen, self.config, self.variant)

    def delta(self, changes: Iterable[Change[Piece]]) -> Delta:
        return deltas.delta(changes, self.config, variant=self.variant)

    def outcomes(self, pieces: Collection[Piece], packet: Packet) -> Outcomes:
        return outcomes(pieces, self.config, packet, self.host)
