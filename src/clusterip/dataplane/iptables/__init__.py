"""iptables mode: the chains people know, to the letter.

How the edge uses the pure parts (one family, one node; `pieces` is what the kernel holds, by `EntryKey`):

    config = Config(family="IPv4", node_ip=..., detector=FromCIDR("10.244.0.0/16"), nfacct=...)
    piece = compile_entry(entry, config)                      # for each changed entry; keep it in `pieces`

    full = delta.load(pieces.values(), installed, config, Variant.NFT)
        `installed` says which KUBE-* chains and which jumps are there: `delta.installed(<text of iptables-save>)`.
        At start, after a failure, when the canary is gone. `full.change` is the number of rules afterwards.
    part = delta.delta(changes, config, stale, variant)       # Change[Piece] for each changed key
        `part.change` is added to the number of rules; `part.stale` is what the next call gets as `stale`.
    feed `.text` (if not "") to `iptables-restore -w 5 --noflush --counters`: all blocks in one run. Only when that
    succeeded do `pieces`, counts and `stale` move on. A failed delta is followed by a load.

Large-cluster mode: `replace(config, large_cluster=True)` when the sum of `piece.endpoints` exceeds
`LARGE_CLUSTER_ENDPOINTS`. Deltas then leave stale chains; once every sync period `delta.sweep(stale)` removes them.

`delta.cleanup(installed)` takes all of it away. Canaries are part of a load. nfacct objects must exist before the
first load of a config with `nfacct`.
"""

from clusterip.dataplane.iptables.compile import Line, OwnChain, Piece, compile_entry
from clusterip.dataplane.iptables.config import (
    LARGE_CLUSTER_ENDPOINTS,
    Config,
    Detector,
    FromCIDR,
    FromInterface,
)
from clusterip.dataplane.iptables.delta import Delta, Installed, Variant
from clusterip.dataplane.iptables.program import Counts, complete

__all__ = [
    "LARGE_CLUSTER_ENDPOINTS",
    "Config",
    "Counts",
    "Delta",
    "Detector",
    "FromCIDR",
    "FromInterface",
    "Installed",
    "Line",
    "OwnChain",
    "Piece",
    "Variant",
    "compile_entry",
    "complete",
]
