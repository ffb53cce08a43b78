"""The dataplanes as a proxy drives them: a node's namespace, all entries at once, then change by change.

Each compiles, works out the delta and gives it to the kernel, with the same parts as `clusterip proxy`.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from clusterip.dataplane import iptables, ipvs, nftables
from clusterip.dataplane.ebpf import attach
from clusterip.dataplane.ebpf.attach import Place, Sockets
from clusterip.dataplane.ebpf.check import check
from clusterip.dataplane.ebpf.layer import SocketLayer
from clusterip.dataplane.ebpf.program import shipped
from clusterip.dataplane.iptables import apply as iptables_edge
from clusterip.dataplane.ipvs import apply as ipvs_edge
from clusterip.dataplane.nftables import apply as nftables_edge
from clusterip.dataplane.node import FromCIDR
from clusterip.errors import Unavailable
from clusterip.kernel import cgroup, netns
from clusterip.kernel.iptables import detect
from clusterip.services.table import Entry, EntryKey
from clusterip.services.tracker import Change
from entries import NODE_IP, PODS, entry
from kubeproxy import added, changed, nft, removed, whole
from pods import pods

DETECTOR = FromCIDR(PODS)


class Plane(Protocol):
    """On one node. `cgroup`: clients must be in it, if it is given."""

    cgroup: Path | None

    async def load(self, entries: Sequence[Entry]) -> None:
        """Into an empty kernel. Raises Unavailable if this machine cannot do it."""
        ...

    async def change(self, before: Entry | None, after: Entry | None) -> None: ...

    def close(self) -> None: ...


class IPTables:
    cgroup = None

    def __init__(self, node: str) -> None:
        self.node = node
        self.config = iptables.Config(node_ip=NODE_IP, detector=DETECTOR)
        self.pieces: dict[EntryKey, iptables.Piece] = {}
        self.stale: frozenset[str] = frozenset()

    async def load(self, entries: Sequence[Entry]) -> None:
        self.rules = iptables_edge.Rules(await detect("IPv4", netns=self.node))
        large = sum(len(e.cluster) for e in entries) > iptables.LARGE_CLUSTER_ENDPOINTS
        self.config = replace(self.config, large_cluster=large)
        self.pieces = {e.key: iptables.compile_entry(e, self.config) for e in entries}
        everything = iptables.delta.load(self.pieces.values(), iptables.Installed(), self.config, self.rules.variant)
        await self.rules.apply(everything)

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        piece = iptables.compile_entry(after, self.config) if after else None
        old = self.pieces.pop(before.key) if before else None
        change = iptables.delta.delta([Change(old, piece)], self.config, self.stale, self.rules.variant)
        await self.rules.apply(change)
        self.stale = change.stale
        if piece:
            self.pieces[piece.key] = piece

    def close(self) -> None:
        pass


class NFTables:
    cgroup = None

    def __init__(self, node: str) -> None:
        self.rules = nftables_edge.Rules("IPv4", netns=node)
        self.config = nftables.Config(node_ip=NODE_IP, detector=DETECTOR, node_port_addresses=(NODE_IP,))
        self.book = nftables.Book()

    async def load(self, entries: Sequence[Entry]) -> None:
        self.book = nftables.Book.of(nftables.compile_entry(e, self.config) for e in entries)
        await self.rules.load(nftables.delta.load(self.book, await self.rules.observe(), self.config))

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        old = self.book.pieces[before.key] if before else None
        changes = [Change(old, nftables.compile_entry(after, self.config) if after else None)]
        shift = self.book.shift(changes)
        await self.rules.apply(nftables.delta.delta(shift))
        self.book.write(changes, shift)

    def close(self) -> None:
        self.rules.close()


class IPVS:
    cgroup = None

    def __init__(self, node: str) -> None:
        self.node = node
        self.config = ipvs.Config(
            node_ip=NODE_IP, detector=DETECTOR, node_addresses=(NODE_IP,), host_addresses=frozenset({NODE_IP})
        )
        self.book = ipvs.Book()

    async def load(self, entries: Sequence[Entry]) -> None:
        await ipvs_edge.check(self.config.scheduler, self.node)
        ipvs_edge.prepare(ipvs_edge.settings(strict_arp=False, kernel=(6, 1)), self.node)
        self.rules = ipvs_edge.Rules(await detect("IPv4", netns=self.node))
        self.book = ipvs.Book.of(ipvs.compile_entry(e, self.config) for e in entries)
        await self._apply(ipvs.delta.load(self.book, await self.rules.observe(self.config), self.config))

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        old = self.book.pieces[before.key] if before else None
        changes = [Change(old, ipvs.compile_entry(after, self.config) if after else None)]
        change = ipvs.delta.delta(self.book.shift(changes), self.config)
        await self._apply(change)
        self.book.write(changes)

    async def _apply(self, change: ipvs.Delta) -> None:
        await self.rules.apply(change)
        self.book.retire(change.retired)

    def close(self) -> None:
        pass


class EBPF:
    """Sockets above the nftables dataplane, as in the proxy."""

    def __init__(self, node: str) -> None:
        self.beneath = NFTables(node)
        self.node = node
        self.cgroup: Path | None = cgroup.mount_point() / node
        cgroup.create(self.cgroup)
        self.directory = Path(tempfile.mkdtemp(prefix="clusterip-bench-", dir="/run"))

    async def load(self, entries: Sequence[Entry]) -> None:
        assert self.cgroup is not None, "set above"
        place = Place(self.cgroup, self.directory)
        check(place, shipped())
        await self.beneath.load(entries)
        self.sockets = Sockets(place, shipped(), netns.cookie(self.node))
        self.layer = SocketLayer(self.sockets, "IPv4", localhost_node_ports=True)
        await self.layer.load(entries, (NODE_IP,))

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        await self.beneath.change(before, after)
        key = (after or before).key  # type: ignore[union-attr]  # one of them is given
        await self.layer.change({key: Change(before, after)})

    def close(self) -> None:
        self.beneath.close()
        attach.remove(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.cgroup:
            cgroup.delete(self.cgroup)


class KubeProxy:
    """Its nftables layout, given to `nft -f` as it does."""

    cgroup = None

    def __init__(self, node: str) -> None:
        self.node = node

    async def load(self, entries: Sequence[Entry]) -> None:
        nft(self.node, whole(entries))

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        if after is None:
            assert before is not None, "one of them is given"
            nft(self.node, removed(before))
        else:
            nft(self.node, changed(after) if before else added(after))

    def close(self) -> None:
        pass


EVERY: Mapping[str, Callable[[str], Plane]] = {
    "iptables": IPTables,
    "nftables": NFTables,
    "ipvs": IPVS,
    "ebpf": EBPF,
    "kube-proxy": KubeProxy,
}


async def available(modes: Sequence[str]) -> list[str]:
    """Those that this machine can do, tried for a moment; says why it cannot do the others."""
    able = []
    for mode in modes:
        async with pods(f"clusterip-bench-try-{os.getpid()}") as made:
            plane = EVERY[mode](made.node)
            try:
                await plane.load([entry(0)])
                able.append(mode)
            except Unavailable as error:
                print(f"  without {mode}: {error}", flush=True)
            finally:
                plane.close()
    return able
