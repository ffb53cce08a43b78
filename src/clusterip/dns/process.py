"""The name server as a process: the Mirror keeps the zone true, the sockets answer from it."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Never

from aiohttp import web

from clusterip.client.api import Api
from clusterip.client.gc import tune_gc
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror, Watched
from clusterip.dns.addresses import Addresses
from clusterip.dns.forward import Forwarder, Upstream
from clusterip.dns.responder import Responder
from clusterip.dns.server import Listen, Server, stream_socket
from clusterip.dns.tally import Exposition, Tally
from clusterip.dns.zone import Name, Pods, Zone
from clusterip.model.objects import EndpointSlice, Namespace, Pod, Service
from clusterip.model.resources import ENDPOINT_SLICES, NAMESPACES, PODS, SERVICES

log = logging.getLogger(__name__)

WATCHED = (
    Watched(NAMESPACES, Namespace),
    Watched(SERVICES, Service),
    Watched(ENDPOINT_SLICES, EndpointSlice),
)


@dataclass(frozen=True, slots=True)
class Settings:
    connection: Connection
    listen: tuple[Listen, ...]
    http: Listen | None
    domain: Name
    forward: tuple[Upstream, ...]
    ttl: int  # seconds, 0..3600
    pods: Pods


async def serve(settings: Settings) -> Never:
    """Until cancelled."""
    tune_gc()
    addresses, tally = Addresses(), Tally()
    async with Api(settings.connection, user_agent="clusterip-dns") as api:
        verified = (Watched(PODS, Pod),) if settings.pods is Pods.VERIFIED else ()
        mirror = Mirror(api, (*WATCHED, *verified))
        zone = Zone(settings.domain, mirror.view, addresses, settings.pods)
        responder = Responder(zone, Forwarder(settings.forward), settings.ttl)
        servers = [Server(responder, tally, where) for where in settings.listen]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(mirror.run())
            tasks.create_task(_follow(mirror, addresses, responder))
            for server in servers:
                tasks.create_task(server.run())
            if settings.http is not None:
                tasks.create_task(_serve_http(settings.http, responder, tally))
            log.info("dns.process.listening on=%s zone=%r", ",".join(map(str, settings.listen)), zone)
    raise AssertionError("served until cancelled")


async def _follow(mirror: Mirror, addresses: Addresses, responder: Responder) -> Never:
    await mirror.synced.wait()
    responder.ready = True
    log.info("dns.process.ready revision=%s", mirror.revision)
    while True:
        changes = await mirror.changes()
        responder.forget(addresses.follow((change.before, change.after) for change in changes.values()))


async def _serve_http(where: Listen, responder: Responder, tally: Tally) -> Never:
    """/health: the process lives. /ready: it knows the cluster's names. /metrics: for Prometheus."""
    exposition = Exposition(tally)

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(
            text="OK\n" if responder.ready else "not listed yet\n", status=200 if responder.ready else 503
        )

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.add_routes([web.get("/health", health), web.get("/ready", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, stream_socket(where)).start()
        await asyncio.get_running_loop().create_future()
    finally:
        await runner.cleanup()
    raise AssertionError("served until cancelled")
