"""Between IPVS and eBPF mode lies nftables mode, until what the one has begun is over.

IPVS knows a connection by its client, the client's port and the backend, not by what the client had sent to. A socket
of eBPF mode sends to the backend itself, and may choose a port that the client has used with IPVS within two minutes:
then the backend's answer is taken for one of the other connection, and never arrives. Connections that nftables mode
begins are sent to the Service, and connection tracking gives them another port where one is taken.

Source: kernel net/netfilter/ipvs/ip_vs_core.c (ip_vs_out_hook); measured: 2 to 4 in 10,000 connections.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from clusterip.dataplane.ebpf import attach
from clusterip.dataplane.ipvs import apply as virtual_servers
from clusterip.kernel import conntrack
from clusterip.kernel.conntrack import Tuple
from clusterip.services.table import FAMILIES, PROTOCOL_NUMBERS, Entry

WAY = "nftables"  # the mode in between
_TIME_WAIT = 7  # of TCP, and what comes after it: nothing is sent any more. Source: nf_conntrack_tcp.h

Flows: TypeAlias = frozenset[tuple[int, Tuple]]  # protocol, and what the client sends


class Passage:
    """What is in the way of a change. Owned by one task at a time."""

    def __init__(self, directory: str, netns: str = "") -> None:
        """`directory`: of eBPF mode."""
        self._directory = Path(directory)
        self._netns = netns
        self._direct: Flows | None = frozenset()  # to backends, that sockets began; None: they may still begin some
        self._rest = 0.0  # monotonic time until which connections are not read again

    def __repr__(self) -> str:
        return f"Passage({'?' if self._direct is None else len(self._direct)} direct)"

    async def obstacle(self, was: str, wanted: str, entries: Callable[[], Iterable[Entry]]) -> str:
        """Why a node in mode `was` ("": none yet) cannot be in mode `wanted` now, in words; "": it can. To be asked for
        every change. `entries`: those in force. Raises ClusterIPError."""
        sockets = was == "ebpf" or attach.present(self._directory)
        if sockets:
            self._direct = None
        if wanted == "ebpf" and (was == "ipvs" or virtual_servers.has_device(self._netns)):
            return "connections of IPVS mode go on"
        if wanted != "ipvs":
            return ""
        if sockets:
            return "sockets of eBPF mode send to backends"
        left = len(await self._left(entries))
        return f"{left} connection{'s' if left > 1 else ''} that sockets of eBPF mode began go on" if left else ""

    async def _left(self, entries: Callable[[], Iterable[Entry]]) -> Flows:
        """Reads the table of connections a tenth of our time at most, however large it is."""
        started = time.monotonic()
        if self._direct is None:
            self._direct = await asyncio.to_thread(direct, list(entries()), self._netns)
        elif self._direct and started >= self._rest:
            self._direct &= await asyncio.to_thread(going_on, self._netns)
            self._rest = time.monotonic() + 10 * (time.monotonic() - started)
        return self._direct


def going_on(netns: str = "") -> Flows:
    """The flows that something may still be sent on. Blocking. Raises ClusterIPError."""
    flows = (flow for family in FAMILIES for flow in conntrack.entries(family, netns=netns))
    return frozenset((f.protocol, f.original) for f in flows if f.tcp_state is None or f.tcp_state < _TIME_WAIT)


def direct(entries: Iterable[Entry], netns: str = "") -> Flows:
    """Those to backends themselves. Blocking. Raises ClusterIPError."""
    backends = {
        (PROTOCOL_NUMBERS[e.protocol], b.address, b.port) for e in entries for b in (*e.cluster, *e.local, *e.serving)
    }
    return frozenset(f for f in going_on(netns) if (f[0], f[1].destination, f[1].destination_port) in backends)
