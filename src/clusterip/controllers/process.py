"""The process behind `clusterip controllers`: one Mirror, one loop, all controllers; health and metrics over HTTP."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import disable_created_metrics

from clusterip.client.api import Api
from clusterip.client.gc import tune_gc
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror, Watched
from clusterip.controllers.deployment.controller import Deployments
from clusterip.controllers.endpoints import EndpointsObjects
from clusterip.controllers.endpointslice.controller import MAX_ENDPOINTS, EndpointSlices
from clusterip.controllers.garbage import Garbage
from clusterip.controllers.loop import Controller, Loop
from clusterip.controllers.metrics import Metrics
from clusterip.controllers.mirroring import Mirroring
from clusterip.controllers.namespaces import Namespaces
from clusterip.controllers.nodes import LostPods, NodeLifecycle
from clusterip.controllers.replicaset import ReplicaSets
from clusterip.controllers.scheduler import Scheduler
from clusterip.errors import BadInput
from clusterip.model import objects, resources

log = logging.getLogger(__name__)

WATCHED = (
    Watched(resources.NAMESPACES, objects.Namespace),
    Watched(resources.NODES, objects.Node),
    Watched(resources.PODS, objects.Pod),
    Watched(resources.SERVICES, objects.Service),
    Watched(resources.ENDPOINTS, objects.Endpoints),
    Watched(resources.ENDPOINT_SLICES, objects.EndpointSlice),
    Watched(resources.REPLICA_SETS, objects.ReplicaSet),
    Watched(resources.DEPLOYMENTS, objects.Deployment),
    Watched(resources.LEASES, objects.Lease),
    Watched(resources.CONFIG_MAPS, objects.ConfigMap),
    Watched(resources.EVENTS, objects.Event),
)


@dataclass(frozen=True, slots=True)
class Options:
    connection: Connection
    max_endpoints: int = MAX_ENDPOINTS  # of one slice, 1 to 1000
    bind: str = ""  # "127.0.0.1:10257", for health and metrics; "": nowhere


def controllers(max_endpoints: int = MAX_ENDPOINTS) -> tuple[Controller, ...]:
    types = {watched.resource: watched.as_type for watched in WATCHED}
    return (
        EndpointSlices(max_endpoints),
        EndpointsObjects(),
        Mirroring(),
        ReplicaSets(),
        Deployments(),
        Scheduler(),
        Garbage(types),
        Namespaces(types),
        NodeLifecycle(),
        LostPods(),
    )


async def run(options: Options) -> None:
    """Until SIGTERM or SIGINT."""
    tune_gc()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # (has no types) twice the series for nothing
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics()
    async with Api(options.connection, user_agent="clusterip-controllers") as api:
        mirror = Mirror(api, WATCHED)
        loop = Loop(api, mirror, WATCHED, controllers(options.max_endpoints), metrics.report)
        async with serving(options.bind, mirror, metrics), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(mirror.run(), name="mirror"), tasks.create_task(loop.run(), name="loop")]
            log.info("controllers.process.started server=%s", options.connection.server)
            await stop.wait()
            for task in running:
                task.cancel()
    log.info("controllers.process.stopped")


@asynccontextmanager
async def serving(bind: str, mirror: Mirror, metrics: Metrics) -> AsyncIterator[None]:
    """/healthz, /livez: the process runs; /readyz: it has listed everything once; /metrics."""
    if not bind:
        yield
        return
    from aiohttp import web

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_: web.Request) -> web.Response:
        if mirror.synced.is_set():
            return web.Response(text="ok")
        return web.Response(status=503, text="the first lists are not complete")

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", alive), web.get("/livez", alive), web.get("/readyz", ready)])
    app.add_routes([web.get("/metrics", measured)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, port = address(bind)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise BadInput(f"--metrics-bind-address {bind}: cannot be listened on, {error.strerror}") from None
    try:
        yield
    finally:
        await runner.cleanup()


def address(bind: str) -> tuple[str, int]:
    """ "127.0.0.1:10257", "[::1]:10257", ":10257". Raises BadInput."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"--metrics-bind-address {bind}: is no address with port", "write it as 127.0.0.1:10257")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (asked for)
