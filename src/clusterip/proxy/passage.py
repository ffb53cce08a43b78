"""Between IPVS and eBPF mode lies nftables mode, until what the one has begun is over.

IPVS knows a connection by its client, the client's port and the backend, not by what the client had sent to. A socket
of eBPF mode sends to the backend itself, and may choose a port that the client has used with IPVS within two minutes:
then the backend's answer is taken for one of the other connection, and never arrives. Connections that nftables mode
begins are sent to the Service, and connection tracking gives them another port where one is taken.

Source: kernel net/netfilter/ipvs/ip_vs_core.c (ip_vs_out_hook); measured: 2 to 4 in 10,000 connections.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from clusterip.dataplane.ebpf import attach
from clusterip.dataplane.ipvs import apply as virtual_servers
from clusterip.kernel import conntrack
from clusterip.kernel.conntrack import Entry as Flow
from clusterip.kernel.conntrack import Tuple
from clusterip.services.table import FAMILIES, Entry

WAY = "nftables"  # the mode in between
_TIME_WAIT = 7  # of TCP, and what comes after it: nothing is sent any more. Source: nf_conntrack_tcp.h
_PROTOCOLS = {6: "TCP", 17: "UDP", 132: "SCTP"}

Direct: TypeAlias = frozenset[tuple[int, Tuple]]  # flows to backends themselves: protocol, and what the client sends


class Passage:
    """What is in the way of a change. Owned by one task at a time."""

    def __init__(self, directory: str, netns: str = "") -> None:
        """`directory`: of eBPF mode."""
        self._directory = Path(directory)
        self._netns = netns
        self._direct: Direct | None = frozenset()  # that sockets began; None: they may still begin some

    def __repr__(self) -> str:
        return f"Passage({'?' if self._direct is None else len(self._direct)} direct)"

    async def obstacle(self, was: str, wanted: str, entries: Callable[[], Iterable[Entry]]) -> str:
        """Why a node in mode `was` ("": none yet) cannot be in mode `wanted` now, in words; "": it can. To be asked for
        every change. `entries`: those in force. Raises ClusterIPError."""
        if was == "ebpf" or attach.present(self._directory):
            self._direct = None
        if wanted == "ebpf" and (was == "ipvs" or virtual_servers.has_device(self._netns)):
            return "connections of IPVS mode go on"
        if wanted != "ipvs":
            return ""
        if was == "ebpf" or attach.present(self._directory):
            return "sockets of eBPF mode send to backends"
        if self._direct is None or self._direct:
            found = await asyncio.to_thread(direct, list(entries()), self._netns)
            self._direct = found if self._direct is None else self._direct & found
        left = len(self._direct)
        return f"{left} connection{'s' if left > 1 else ''} that sockets of eBPF mode began go on" if left else ""


def direct(entries: Iterable[Entry], netns: str = "") -> Direct:
    """The flows to backends that nobody translates. Blocking. Raises ClusterIPError."""
    backends = {(e.protocol, b.address, b.port) for e in entries for b in (*e.cluster, *e.local, *e.serving)}
    flows = (flow for family in FAMILIES for flow in conntrack.dump(family, netns=netns).entries)
    return frozenset((f.protocol, f.original) for f in flows if _goes_on(f) and _to(f) in backends)


def _to(flow: Flow) -> tuple[str, str, int]:
    return _PROTOCOLS.get(flow.protocol, ""), flow.original.destination, flow.original.destination_port


def _goes_on(flow: Flow) -> bool:
    return flow.tcp_state is None or flow.tcp_state < _TIME_WAIT
