"""IPVS mode: virtual servers in the kernel, and the chains and sets around them that kube-proxy has.

Kubernetes has deprecated this mode since 1.35; it is here for clusters that run it.
"""

from clusterip.dataplane.ipvs.book import Book, Present, Seen, Shift
from clusterip.dataplane.ipvs.compile import At, Piece, RealServer, VirtualServer, compile_entry
from clusterip.dataplane.ipvs.config import DEVICE, Config
from clusterip.dataplane.ipvs.delta import Delta

__all__ = [
    "DEVICE",
    "At",
    "Book",
    "Config",
    "Delta",
    "Piece",
    "Present",
    "RealServer",
    "Seen",
    "Shift",
    "VirtualServer",
    "compile_entry",
]
