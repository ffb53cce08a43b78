"""The loop over a real connection, against a server in memory."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
from tests.client.fake_apiserver import FakeApiServer
from tests.controllers.world import ZONE
from tests.waiting import until

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror
from clusterip.client.view import Change, Ref
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.loop import Controller, Loop, Report
from clusterip.controllers.metrics import Metrics
from clusterip.controllers.process import WATCHED, address, controllers
from clusterip.controllers.replicaset import ReplicaSets
from clusterip.controllers.writes import Create, Key, Plan
from clusterip.errors import BadInput
from clusterip.model.objects import EndpointSlice, Pod
from clusterip.model.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
)
from clusterip.model.status import Object


@asynccontextmanager
async def looped(
    server: FakeApiServer, some: Iterable[Controller], report: Callable[[Report], None] = lambda report: None
) -> AsyncIterator[Mirror]:
    async with Api(Connection(server.url)) as api:
        mirror = Mirror(api, WATCHED)
        loop = Loop(api, mirror, WATCHED, tuple(some), report)
        tasks = [asyncio.create_task(mirror.run()), asyncio.create_task(loop.run())]
        try:
            yield mirror
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


def ready_pod(name: str, ip: str, *, ready: bool = True) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }


async def fill(server: FakeApiServer, nodes: int = 1) -> None:
    for number in range(1, nodes + 1):
        await server.put(
            NODES,
            {
                "metadata": {"name": f"node-{number}", "labels": {ZONE: f"z{number}"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        )


def service(name: str = "web") -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"app": name},
            "clusterIP": "10.96.0.10",
            "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    }


def deployment(replicas: int, image: str = "clusterip/echo") -> Object:
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    }


def held(server: FakeApiServer, kind: object) -> list[Object]:
    return [obj for (resource, _, _), obj in server.objects.items() if resource is kind]


async def test_a_deployment_becomes_pods_on_nodes_and_endpoints(server: FakeApiServer) -> None:
    await fill(server, nodes=3)
    await server.put(SERVICES, service())
    await server.put(DEPLOYMENTS, deployment(6))
    metrics = Metrics()
    async with looped(server, controllers(), metrics.report):
        await until(lambda: sum(bool(p["spec"].get("nodeName")) for p in held(server, PODS)) == 6)
        placed = sorted(pod["spec"]["nodeName"] for pod in held(server, PODS))
        assert placed == ["node-1", "node-1", "node-2", "node-2", "node-3", "node-3"]
        assert len(held(server, REPLICA_SETS)) == 1
        for number, pod in enumerate(held(server, PODS)):
            await server.put(PODS, {**pod, "status": ready_pod("", f"10.244.1.{number + 2}")["status"]})
        await until(lambda: any(len(s["endpoints"]) == 6 for s in held(server, ENDPOINT_SLICES)))
        await until(
            lambda: any(len(e["subsets"][0]["addresses"]) == 6 for e in held(server, ENDPOINTS) if e["subsets"])
        )
        await until(lambda: held(server, DEPLOYMENTS)[0].get("status", {}).get("availableReplicas") == 6)
        assert b'endpoint_slice_controller_changes_total{operation="create"} 1.0' in metrics.text()
        assert b"endpoint_slice_controller_endpoints_desired 6.0" in metrics.text()


async def test_no_pod_too_many_is_made_whatever_the_watches_do(server: FakeApiServer) -> None:
    await fill(server)
    made: list[object] = []
    server.created = made.append
    async with looped(server, controllers()):
        for replicas in (5, 20, 3, 12):
            await server.put(
                DEPLOYMENTS,
                {**deployment(replicas), "metadata": {**(held(server, DEPLOYMENTS) or [deployment(0)])[0]["metadata"]}},
            )
            await server.hang_up()
            await server.forget()
            await until(lambda: len(held(server, PODS)) == replicas)  # noqa: B023 (awaited in the round)
            await asyncio.sleep(0.02)
            assert len(held(server, PODS)) == replicas
            assert sum(resource is PODS for resource in made) <= 5 + 20 + 9, "a pod was made twice"


async def test_no_pod_is_made_twice_while_the_watch_is_late(server: FakeApiServer) -> None:
    await fill(server)
    made: list[object] = []
    server.created = made.append
    server.lag[PODS] = 0.1
    async with looped(server, [ReplicaSets()]):
        replica_set = await server.put(REPLICA_SETS, deployment(5))
        for number in range(10):
            await asyncio.sleep(0.02)
            replica_set["metadata"]["labels"] = {"touched": str(number)}
            await server.put(REPLICA_SETS, replica_set)
        await asyncio.sleep(0.3)
    assert made.count(PODS) == 5


async def test_a_readiness_change_is_in_the_slice_at_once_and_costs_the_same_among_many(server: FakeApiServer) -> None:
    await fill(server)
    for number in range(300):
        await server.put(SERVICES, service(f"other-{number}"))
    await server.put(SERVICES, service())
    await server.put(PODS, ready_pod("a", "10.244.1.2"))

    def condition() -> bool | None:
        slices = [
            s for s in held(server, ENDPOINT_SLICES) if s["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
        ]
        return slices[0]["endpoints"][0]["conditions"]["ready"] if slices and slices[0]["endpoints"] else None

    async with looped(server, controllers()):
        await until(lambda: condition() is True and len(held(server, ENDPOINTS)) == 301)
        took = []
        for round_ in range(6):
            before, ready = len(server.requests), bool(round_ % 2)
            started = time.perf_counter()
            await server.put(PODS, ready_pod("a", "10.244.1.2", ready=ready))
            await until(lambda: condition() is ready)  # noqa: B023 (awaited in the round)
            took.append(time.perf_counter() - started)
            await asyncio.sleep(0.05)
            assert len(server.requests) - before == 2, "one write of a slice and one of Endpoints"
        assert min(took) < 0.1


class Counting:
    """Makes one ConfigMap for each change of a pod it sees, and fails when told to."""

    name = "counting"

    def __init__(self, fail: int = 0) -> None:
        self.fail = fail
        self.rounds = 0

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        return (Key(ref.namespace, ref.name),) if ref.kind == "Pod" else ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        self.rounds += 1
        if self.fail:
            self.fail -= 1
            raise RuntimeError("a mistake of ours")
        return Plan((Create(CONFIG_MAPS, key.namespace, {"metadata": {"name": f"{key.name}-{self.rounds}"}}),))


async def test_a_round_that_breaks_is_tried_again_and_hurts_nobody_else(
    server: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    controller = Counting(fail=2)
    outcomes: list[str] = []
    async with looped(server, [controller], lambda report: outcomes.append(report.outcome)):
        await server.put(PODS, ready_pod("a", "10.244.1.2"))
        await until(lambda: len(outcomes) == 3)
    assert held(server, CONFIG_MAPS)
    assert outcomes == ["error", "error", "success"]
    assert "controllers.counting.broken" in caplog.text


async def test_a_refused_write_is_tried_again(server: FakeApiServer) -> None:
    async with looped(server, [Counting()]) as mirror:
        await mirror.synced.wait()
        await asyncio.sleep(0.05)  # the watches stand: what is refused now is the write
        server.refuse = 2
        await server.put(PODS, ready_pod("a", "10.244.1.2"))
        await until(lambda: bool(held(server, CONFIG_MAPS)))


def test_where_metrics_are_served() -> None:
    assert address("127.0.0.1:10257") == ("127.0.0.1", 10257)
    assert address("[::1]:1") == ("::1", 1)
    assert address(":1") == ("0.0.0.0", 1)
    for wrong in ("10257", "host:", "host:99999"):
        with pytest.raises(BadInput, match="is no address with port"):
            address(wrong)


def test_every_watched_kind_is_watched_once() -> None:
    assert len({watched.as_type for watched in WATCHED}) == len(WATCHED)
    assert {EndpointSlice, Pod} <= {watched.as_type for watched in WATCHED}
