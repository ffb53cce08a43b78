"""The pure half of eBPF mode behind the seam that all dataplanes share."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from clusterip.dataplane.ebpf import delta as deltas
from clusterip.dataplane.ebpf.compile import Piece, compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import Delta
from clusterip.dataplane.ebpf.layout import Contents
from clusterip.dataplane.ebpf.outcomes import outcomes
from clusterip.services.route import Outcomes, Packet
from clusterip.services.table import Entry
from clusterip.services.tracker import Change


@dataclass(frozen=True, slots=True)
class EBPF:
    """`dataplane.base.Compiler` for sockets. Its `Passed` is the dataplane beneath's to answer."""

    config: Config

    def compile(self, entry: Entry) -> Piece:
        return compile_entry(entry, self.config)

    def load(self, pieces: Collection[Piece], seen: Contents) -> Delta:
        return deltas.load(pieces, seen)

    def delta(self, changes: Iterable[Change[Piece]]) -> Delta:
        return deltas.delta(changes)

    def outcomes(self, pieces: Collection[Piece], packet: Packet) -> Outcomes:
        return outcomes(pieces, packet)
