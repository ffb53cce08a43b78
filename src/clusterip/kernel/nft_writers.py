"""Who writes into nf_tables: the kernel tells of each transaction, and names the process that made it.

Source: kernel include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h (NFT_MSG_NEWGEN).
"""

import struct
from typing import NamedTuple

from clusterip.errors import Unavailable
from clusterip.kernel.netlink import Netlink, attributes

_GROUP = 7  # NFNLGRP_NFTABLES
_NEW_GENERATION = 10 << 8 | 15  # of the subsystem nf_tables
_PID, _NAME = 2, 3
_U32 = struct.Struct(">I")


class Writer(NamedTuple):
    pid: int  # of the thread, as the machine counts, whatever namespace it is in
    program: str  # at most 15 bytes of its name


class Writers:
    """Those that write from now on, iptables-nft among them; of one network namespace."""

    def __init__(self, netns: str = "") -> None:
        """Raises Unavailable."""
        self._link = Netlink(netns)
        self._link.join(_GROUP)

    def seen(self) -> set[Writer]:
        """Since the last call. Of very many, those that the kernel had room to tell of."""
        found: set[Writer] = set()
        try:
            for kind, body in self._link.heard():
                told = attributes(body, 4) if kind == _NEW_GENERATION else {}
                if len(told.get(_PID, b"")) == _U32.size:
                    name = told.get(_NAME, b"").rstrip(b"\0").decode(errors="replace")
                    found.add(Writer(_U32.unpack(told[_PID])[0], name))
        except Unavailable:  # some were lost: the others are told with the next call
            pass
        return found

    def close(self) -> None:
        self._link.close()
