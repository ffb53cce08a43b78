"""The proxy of node-1 in any mode: its real parts, built from its configuration, in the namespace of the node.

They run in this process: whoever uses them is in that namespace meanwhile, with all threads that he starts.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.client.fake_apiserver import FakeApiServer
from tests.scenarios.meaning import NodeFields, service_ranges
from tests.scenarios.members import FAMILIES, HERE, NODE, POD_RANGES
from tests.scenarios.objects import State, documents_of
from tests.scenarios.world import World

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror
from clusterip.kernel import cgroup
from clusterip.kernel import netns as namespaces
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES, Resource
from clusterip.model.status import Object
from clusterip.proxy import build, prepare, rules, sockets
from clusterip.proxy.config import EBPF, IPVS, DetectLocal, IPTables, NFTables, ProxyConfig
from clusterip.proxy.durations import Duration
from clusterip.proxy.events import Events
from clusterip.proxy.health import Health
from clusterip.proxy.loop import Loop
from clusterip.proxy.metrics import Metrics
from clusterip.proxy.node import find
from clusterip.proxy.parts import FamilyParts, Settings
from clusterip.proxy.pending import FamilyProxier
from clusterip.proxy.process import watched
from clusterip.proxy.proxier import Proxier
from clusterip.proxy.tables import TablePlane
from clusterip.services.resolve import ZONE_LABEL

KINDS: Mapping[str, Resource] = {"Service": SERVICES, "EndpointSlice": ENDPOINT_SLICES}
PATIENCE = 60.0  # seconds for a change to be in the kernel
Key = tuple[str, str, str]  # kind, namespace, name


def configuration(dataplane: str, node: NodeFields, group: Path, directory: Path) -> ProxyConfig:
    """What the page says of the node, as a file would say it."""
    now, seldom = Duration(0), Duration(30)
    hidden = node.get("masqueradeAll", False)
    told = node.get("detector", list(POD_RANGES.values()))
    ranges = [] if told == "none" else [told] if isinstance(told, str) else told
    by_interface = bool(ranges) and "/" not in ranges[0]
    config = ProxyConfig(
        hostname_override=HERE,
        mode=dataplane,
        iptables=IPTables(
            masquerade_all=hidden,
            localhost_node_ports=node.get("localhostNodePorts", True),
            sync_period=seldom,
            min_sync_period=now,
        ),
        ipvs=IPVS(sync_period=seldom, min_sync_period=now),
        nftables=NFTables(masquerade_all=hidden, sync_period=seldom, min_sync_period=now),
        ebpf=EBPF(cgroup=str(group), directory=str(directory)),
        detect_local_mode="BridgeInterface" if by_interface else "ClusterCIDR",
        detect_local=DetectLocal(bridge_interface=ranges[0] if by_interface else ""),
        cluster_cidr="" if by_interface else ",".join(ranges),
        node_port_addresses=tuple(node.get("nodePortAddresses", ())),
    )
    return rules.complete(config, "page")


@dataclass
class Running:
    server: FakeApiServer
    loop: Loop
    parts: tuple[FamilyParts, ...]
    there: dict[Key, Object] = field(default_factory=dict)  # at the API server

    async def become(self, state: State, node: NodeFields) -> None:
        """Write what differs, object by object, and wait until the kernel holds it."""
        wanted = {_key(d): d for d in documents_of(state)}
        if self.there.get(("Node", "", HERE)) != (ours := node_document(node)):
            await self.server.put(NODES, _copied(ours))
            self.there["Node", "", HERE] = ours
        for key in [k for k in self.there if k[0] in KINDS and k not in wanted]:
            await self.server.remove(KINDS[key[0]], *key[1:])
            del self.there[key]
        for key, document in wanted.items():
            if self.there.get(key) != document:
                await self.server.put(KINDS[key[0]], _copied(document))
                self.there[key] = document
        await self._settled()

    async def _settled(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                told = self.loop.status()
                kinds = told["revisions"].values()  # the server tells each of every revision
                if kinds and min(kinds) >= self.server.revision and not told["pending"]:
                    return
                await asyncio.sleep(0.005)

    async def differences(self) -> list[str]:
        """What the kernel holds otherwise than as it was written."""
        return [line for part in self.parts for line in await part.proxier.check(deep=True)]


def _key(document: Object) -> Key:
    return document["kind"], document["metadata"]["namespace"], document["metadata"]["name"]


def _copied(document: Object) -> Object:
    """The server writes into what it is given."""
    return {**document, "metadata": dict(document["metadata"])}


def node_document(node: NodeFields) -> Object:
    labels = {ZONE_LABEL: node["zone"]} if "zone" in node else {}
    addresses = [{"type": "InternalIP", "address": NODE.address(f)} for f in FAMILIES]
    return {"kind": "Node", "metadata": {"name": HERE, "labels": labels}, "status": {"addresses": addresses}}


@contextlib.asynccontextmanager
async def running(config: ProxyConfig, state: State, node: NodeFields) -> AsyncIterator[Running]:
    """In the namespace of the node, from the first state on."""
    if build.serves_loopback(config):
        prepare.route_localnet()
    async with FakeApiServer() as server, Api(Connection(server.url)) as api:
        there = {("Node", "", HERE): node_document(node), **{_key(d): d for d in documents_of(state)}}
        for key, document in there.items():
            await server.put(KINDS.get(key[0], NODES), _copied(document))
        config, opened = await sockets.settle(config)
        ours = await find(api, HERE, config)
        machine = await build.look(config, ours, opened)
        health = Health(machine.families, rules.mode_section(config).sync_period)
        mirror = Mirror(api, watched(HERE))
        parts = build.families(config, machine, lambda family: service_ranges(node, family), health, Events(api, HERE))
        loop = Loop(mirror, parts, health, Metrics({}, machine.counters, config.mode), _settings(config))
        tasks = [asyncio.create_task(mirror.run()), asyncio.create_task(loop.run())]
        try:
            made = Running(server, loop, parts, there)
            await made._settled()
            yield made
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for part in parts:
                await part.service_health.close()
                _let_go(part.proxier)
            if opened:
                opened.close()
        assert all(isinstance(e, asyncio.CancelledError) for e in ended), ended


def _let_go(proxier: FamilyProxier) -> None:
    """Of netlink sockets, which a proxy keeps until its process ends."""
    beneath = proxier._beneath if isinstance(proxier, sockets.SocketProxier) else proxier
    if isinstance(beneath, Proxier) and isinstance(beneath.plane, TablePlane):
        beneath.plane.rules.close()


def _settings(config: ProxyConfig) -> Settings:
    section = rules.mode_section(config)
    return Settings(HERE, config.mode, section.min_sync_period, section.sync_period)


# --- whose sockets are the node's


@contextlib.contextmanager
def in_cgroups(mark: str) -> Iterator[tuple[Path, Any]]:
    """A cgroup of the node, and what opens sockets in it: they belong to the cgroup of the thread that opens them.

    This process is in the parent meanwhile: a client outside is none of the node's.
    """
    home = cgroup.mount_point() / Path("/proc/self/cgroup").read_text().split("0::/", 1)[1].split("\n")[0]
    parent = cgroup.mount_point() / f"clusterip-test-{mark}"
    ours = parent / "node"
    cgroup.create(ours)
    (ours / "cgroup.type").write_text("threaded")
    cgroup.add(parent, os.getpid())
    with ThreadPoolExecutor(1) as opener:
        try:
            opener.submit(lambda: (ours / "cgroup.threads").write_text("0")).result()
            yield ours, lambda make: opener.submit(make).result()
        finally:
            opener.submit(lambda: (parent / "cgroup.threads").write_text("0")).result()
    cgroup.add(home, os.getpid())
    cgroup.delete(parent)


@contextlib.contextmanager
def inside(world: World) -> Iterator[None]:
    """This thread, and those it starts, are the node's."""
    with namespaces.inside(world.node):
        yield
