"""All controllers against the API server itself, over a real connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest
from tests.apiserver.serving import running
from tests.controllers.test_loop import deployment, service

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror
from clusterip.controllers.loop import Loop
from clusterip.controllers.process import WATCHED, controllers
from clusterip.model.objects import Deployment, EndpointSlice, Namespace, Pod, ReplicaSet, Service, Value
from clusterip.model.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Resource,
)
from clusterip.model.status import ApiError

T = TypeVar("T", bound=Value)


@dataclass(frozen=True, slots=True)
class Cluster:
    api: Api

    async def all(self, resource: Resource, as_type: type[T], namespace: str = "default") -> Sequence[T]:
        return (await self.api.list(resource, as_type, namespace)).items

    async def pods(self, namespace: str = "default") -> Sequence[Pod]:
        return [p for p in await self.all(PODS, Pod, namespace) if p.metadata.deletion_timestamp is None]

    async def make_ready(self) -> None:
        for number, pod in enumerate(await self.pods()):
            ip = f"10.244.1.{number + 2}"
            condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
            await self.api.patch(PODS, "default", pod.metadata.name, {"status": status}, subresource="status")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running() as server, Api(Connection(server.url)) as api:
        mirror = Mirror(api, WATCHED)
        loop = Loop(api, mirror, WATCHED, controllers())
        tasks = [asyncio.create_task(mirror.run()), asyncio.create_task(loop.run())]
        for name in ("node-1", "node-2"):
            node = {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await api.create(NODES, "", node)
        yield Cluster(api)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(15):
        while not await holds():  # noqa: ASYNC110 (it asks the server)
            await asyncio.sleep(0.01)


async def rolled_out(cluster: Cluster, replicas: int) -> None:
    async def all_bound() -> bool:
        pods = await cluster.pods()
        return len(pods) == replicas and all(pod.spec.node_name for pod in pods)

    async def available() -> bool:
        found = await cluster.api.get(DEPLOYMENTS, "default", "web", Deployment)
        return found.status.available_replicas == found.status.updated_replicas == replicas

    await until(all_bound)
    await cluster.make_ready()
    await until(available)


async def test_from_a_deployment_to_the_endpoints_of_its_service(cluster: Cluster) -> None:
    given = service()
    del given["spec"]["clusterIP"]
    await cluster.api.create(SERVICES, "default", given)
    await cluster.api.create(DEPLOYMENTS, "default", deployment(4))
    await rolled_out(cluster, 4)
    assert sorted(pod.spec.node_name for pod in await cluster.pods()) == ["node-1"] * 2 + ["node-2"] * 2

    async def ready_endpoints() -> list[str]:
        slices = await cluster.all(ENDPOINT_SLICES, EndpointSlice)
        ours = [s for s in slices if s.metadata.labels.get("kubernetes.io/service-name") == "web"]
        return sorted(e.addresses[0] for s in ours for e in s.endpoints or () if e.conditions.ready)

    async def all_there() -> bool:
        return await ready_endpoints() == ["10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"]

    await until(all_there)
    (first, *_) = await cluster.pods()
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await cluster.api.patch(PODS, "default", first.metadata.name, unready, subresource="status")

    async def one_less() -> bool:
        return len(await ready_endpoints()) == 3

    await until(one_less)
    await cluster.api.delete(SERVICES, "default", "web")

    async def collected() -> bool:
        return not await ready_endpoints()

    await until(collected)


@pytest.mark.parametrize("way", ["Background", "Foreground", "Orphan"])
async def test_each_way_of_deletion(cluster: Cluster, way: str) -> None:
    await cluster.api.create(DEPLOYMENTS, "default", deployment(2))
    await rolled_out(cluster, 2)
    await cluster.api.delete(DEPLOYMENTS, "default", "web", propagation=way)

    async def ended() -> bool:
        for pod in await cluster.all(PODS, Pod):  # the node agent's part
            if pod.metadata.deletion_timestamp:
                await cluster.api.delete(PODS, "default", pod.metadata.name, grace_seconds=0)
        deployments = await cluster.all(DEPLOYMENTS, Deployment)
        sets, pods = await cluster.all(REPLICA_SETS, ReplicaSet), await cluster.all(PODS, Pod)
        if way == "Orphan":
            return not deployments and all(not rs.metadata.owner_references for rs in sets) and len(pods) == 2
        return not deployments and not sets and not pods

    await until(ended)


async def test_a_namespace_goes_with_all_that_is_in_it(cluster: Cluster) -> None:
    await cluster.api.create(NAMESPACES, "", {"metadata": {"name": "shop"}})
    given = deployment(2)
    given["metadata"]["namespace"] = "shop"
    await cluster.api.create(DEPLOYMENTS, "shop", given)

    async def made() -> bool:
        return len(await cluster.pods("shop")) == 2

    await until(made)
    await cluster.api.delete(NAMESPACES, "", "shop")

    async def gone() -> bool:
        for pod in await cluster.all(PODS, Pod, "shop"):
            if pod.metadata.deletion_timestamp:
                await cluster.api.delete(PODS, "shop", pod.metadata.name, grace_seconds=0)
        try:
            await cluster.api.get(NAMESPACES, "", "shop", Namespace)
        except ApiError as error:
            return error.code == 404
        return False

    await until(gone)
    assert not await cluster.all(DEPLOYMENTS, Deployment, "shop")
    assert not await cluster.all(SERVICES, Service, "shop")
