"""nftables mode: two maps hold everything, written over netlink.

How the edge uses the pure parts (one family, one node):

    config = Config(family="IPv4", node_ip=..., detector=FromCIDR("10.244.0.0/16"))
    book = Book.of(compile_entry(entry, config) for entry in entries)
    await rules.load(delta.load(book, await rules.observe(), config))
        At start, after a failure, when others have damaged the table, and when a map is full (`delta.overflows`).
    shift = book.shift(changes)                       # Change[Piece] for each changed key
    await rules.apply(delta.delta(shift))
    book.write(changes, shift)                        # only when that succeeded
    compare(await rules.read(), book, config)         # when `rules.look()` says that somebody else wrote
"""

from clusterip.dataplane.nftables.book import Book
from clusterip.dataplane.nftables.compile import Piece, compile_entry
from clusterip.dataplane.nftables.config import TABLE, Config
from clusterip.dataplane.nftables.delta import Delta, Installed, program

__all__ = ["TABLE", "Book", "Config", "Delta", "Installed", "Piece", "compile_entry", "program"]
