"""The proxy's own HTTP servers: health (port 10256) and metrics (port 10249)."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Never

from aiohttp import web

from clusterip.errors import Unavailable
from clusterip.model.status import Object
from clusterip.proxy.health import HEADERS, Answer, Health
from clusterip.proxy.metrics import CONTENT_TYPE, Metrics
from clusterip.proxy.rules import host_and_port
from clusterip.proxy.service_health import listen

log = logging.getLogger(__name__)

RETRY = 5.0  # seconds between tries to open the port


@dataclass(frozen=True, slots=True)
class Told:
    """What the metrics server tells, besides metrics."""

    mode: Callable[[], str]
    configuration: Callable[[], Object]
    status: Callable[[], Object]


def health_app(health: Health, metrics: Metrics) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        found = health.healthz(time.monotonic(), time.time())
        metrics.healthz.labels(str(found.code)).inc()
        return _json(found)

    async def livez(_: web.Request) -> web.Response:
        found = health.livez(time.monotonic(), time.time())
        metrics.livez.labels(str(found.code)).inc()
        return _json(found)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/livez", livez)])
    return app


def metrics_app(told: Told, metrics: Metrics, healthy: Callable[[], bool]) -> web.Application:
    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok", headers={"X-Content-Type-Options": "nosniff"})

    async def numbers(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(metrics.text)  # packet counters are read from the kernel
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def slis(_: web.Request) -> web.Response:
        metrics.well.labels("sync-proxy-rules", "healthz").set(int(healthy()))
        return web.Response(body=metrics.sli_text(), headers={"Content-Type": CONTENT_TYPE})

    async def mode(_: web.Request) -> web.Response:
        return web.Response(text=told.mode(), headers={"X-Content-Type-Options": "nosniff"})

    async def configuration(_: web.Request) -> web.Response:
        return _json(Answer(200, {"kubeproxy.config.k8s.io": told.configuration()}))

    async def status(_: web.Request) -> web.Response:
        return _json(Answer(200, told.status()))

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", alive),
            web.get("/metrics", numbers),
            web.get("/metrics/slis", slis),
            web.get("/proxyMode", mode),
            web.get("/configz", configuration),
            web.get("/status", status),
        ]
    )
    return app


def _json(answer: Answer) -> web.Response:
    return web.Response(status=answer.code, body=json.dumps(answer.body).encode(), headers=HEADERS)


async def serve(
    address: str, app: web.Application, *, hard_fail: bool, failed: Callable[[str], Awaitable[None]]
) -> Never:
    """Serve for ever on "IP:port". A port that is taken is tried again and again; with `hard_fail`, `failed` is told
    and Unavailable raised."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        while True:
            try:
                await web.SockSite(runner, listen(*host_and_port(address), dual_stack=True)).start()
                break
            except OSError as error:
                reason = f"cannot listen on {address}: {error.strerror}"
                log.warning("proxy.server.failed reason=%r", reason)
                if hard_fail:
                    await failed(reason)
                    raise Unavailable(reason, hint="free the port, or set bindAddressHardFail: false") from error
            await asyncio.sleep(RETRY)
        log.info("proxy.server.listening address=%s", address)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")
    finally:
        await runner.cleanup()
