"""The proxy's loop inside a test: a real Mirror of a fake API server, real rules in a namespace."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Never

from tests.client.fake_apiserver import FakeApiServer
from tests.waiting import until

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror
from clusterip.dataplane.iptables import Config, FromCIDR
from clusterip.dataplane.iptables.apply import Rules, usable
from clusterip.dataplane.nftables import Config as TableConfig
from clusterip.dataplane.nftables.apply import Rules as Tables
from clusterip.kernel.iptables import VariantName
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES
from clusterip.model.status import Object
from clusterip.proxy.chains import ChainPlane
from clusterip.proxy.health import Health
from clusterip.proxy.loop import Loop
from clusterip.proxy.metrics import Metrics
from clusterip.proxy.node import RangeChanged
from clusterip.proxy.parts import FamilyParts, Others, Settings
from clusterip.proxy.pending import ServedAddresses
from clusterip.proxy.process import watched
from clusterip.proxy.proxier import Proxier
from clusterip.proxy.service_health import ServiceHealth
from clusterip.proxy.tables import TablePlane
from clusterip.services.tracker import ServiceName

CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"))

TABLES = TableConfig(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"), service_cidrs=("10.96.0.0/16",))


@dataclass
class Running:
    server: FakeApiServer
    mirror: Mirror
    loop: Loop
    proxier: Any  # a Proxier
    health: Health
    metrics: Metrics
    ended: "asyncio.Task[Never]"  # the loop
    refused: list[ServiceName] = field(default_factory=list)

    async def put(self, *objects: Object) -> None:
        """Write the objects, and wait until the kernel holds them."""
        for obj in objects:
            resource = {"Service": SERVICES, "EndpointSlice": ENDPOINT_SLICES, "Node": NODES}[obj["kind"]]
            await self.server.put(resource, obj)
            await self.at(self.server.revision)  # one by one: each kind has a watch of its own

    async def remove(self, obj: Object) -> None:
        resource = {"Service": SERVICES, "EndpointSlice": ENDPOINT_SLICES, "Node": NODES}[obj["kind"]]
        await self.server.remove(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        await self.at(self.server.revision)

    async def at(self, revision: int) -> None:
        """With all kinds: the server tells each of every revision."""

        def there() -> bool:
            kinds = self.loop.status()["revisions"].values()
            return bool(kinds) and min(kinds) >= revision and not self.proxier.pending

        await until(there)


@contextlib.asynccontextmanager
async def running(
    netns: str,
    *,
    config: Config = CONFIG,
    settings: Settings | None = None,
    variant: VariantName | None = None,
    rules: Callable[[Rules], Rules] = lambda rules: rules,
    node: Object | None = None,
    server: FakeApiServer | None = None,
    others: Others | None = None,
) -> AsyncIterator[Running]:
    programs = await usable(config.family, netns, variant)
    assert programs is not None
    settings = replace(settings or Settings("node-1", "iptables", 0.0, 0.3), netns=netns)

    async def all_addresses() -> None:
        return None

    proxier = Proxier(ChainPlane(config, rules(Rules(programs)), all_addresses, settings.sync_period))
    async with _looping(proxier, all_addresses, settings, node, server, others) as made:
        yield made


@contextlib.asynccontextmanager
async def running_tables(
    netns: str,
    *,
    config: TableConfig = TABLES,
    settings: Settings | None = None,
    served: tuple[str, ...] | None = ("192.168.50.11",),
    node: Object | None = None,
    server: FakeApiServer | None = None,
) -> AsyncIterator[Running]:
    """The same in nftables mode."""
    settings = replace(settings or Settings("node-1", "nftables", 0.0, 0.3), netns=netns)

    async def addresses() -> tuple[str, ...] | None:
        return served

    with contextlib.closing(Tables(config.family, netns=netns)) as rules:
        plane = TablePlane(config, rules, addresses, lambda: config.service_cidrs, settings.sync_period)
        proxier = Proxier(plane)
        async with _looping(proxier, addresses, settings, node, server) as made:
            yield made


@contextlib.asynccontextmanager
async def _looping(
    proxier: Any,
    addresses: ServedAddresses,
    settings: Settings,
    node: Object | None,
    server: FakeApiServer | None,
    others: Others | None = None,
) -> AsyncIterator[Running]:
    async def failed(service: ServiceName, _: str) -> None:
        made.refused.append(service)

    async with server or FakeApiServer() as server, Api(Connection(server.url)) as api:
        await server.put(NODES, node or node_object())
        mirror = Mirror(api, watched(settings.node))
        health, metrics = Health([proxier.family], settings.sync_period), Metrics({}, mode=settings.mode)
        service_health = ServiceHealth(proxier.family, lambda: health.healthy(time.monotonic()), failed)
        parts = FamilyParts(proxier, service_health, addresses)
        loop = Loop(mirror, [parts], health, metrics, settings, others)
        tasks = [asyncio.create_task(mirror.run()), asyncio.create_task(loop.run())]
        made = Running(server, mirror, loop, proxier, health, metrics, tasks[1])
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await service_health.close()
        assert all(isinstance(e, asyncio.CancelledError | RangeChanged) for e in ended), ended


def node_object(**labels: str) -> Object:
    return {"kind": "Node", "metadata": {"name": "node-1", "labels": labels}}


def service(name: str = "web", address: str = "10.96.0.10", protocol: str = "TCP", **spec: Any) -> Object:
    port = {"name": "http", "port": 80, "protocol": protocol, "targetPort": 8080}
    if "node_port" in spec:
        port["nodePort"] = spec.pop("node_port")
    body = {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": [port], **spec}
    status = spec.pop("status", {})
    body.pop("status", None)
    return {"kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": body, "status": status}


def slice_of(
    name: str,
    *addresses: str,
    protocol: str = "TCP",
    port: int = 8080,
    here: tuple[str, ...] = ("10.244.1.", "fd00:1:1:"),
) -> Object:
    """Ready endpoints; those that begin with `here` are on node-1."""
    endpoints = [
        {"addresses": [a], "conditions": {"ready": True}, "nodeName": "node-1" if a.startswith(here) else "node-2"}
        for a in addresses
    ]
    six = bool(addresses) and ":" in addresses[0]
    return {
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-6" if six else f"{name}-4",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv6" if six else "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": port, "protocol": protocol}],
    }
