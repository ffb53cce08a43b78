"""What the API server asks of a node agent: a container's logs, and programs to run beside it. The kubelet's paths.

GET /containerLogs/NAMESPACE/POD/CONTAINER ? follow previous tailLines sinceSeconds sinceTime timestamps limitBytes
GET /exec/NAMESPACE/POD/CONTAINER ? command=... input output error tty     (a WebSocket, see `node.exec`)
GET /pods      the pods that live here
GET /healthz   open to all; the others want the token
"""

import hmac
import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from clusterip.errors import BadInput, Unavailable, in_words
from clusterip.kernel.processes import Program
from clusterip.model.objects import Pod
from clusterip.node import exec as executing
from clusterip.node import logs
from clusterip.node.container import ContainerLife
from clusterip.node.pod import PodLife
from clusterip.node.settings import Serving
from clusterip.node.tools import Tools

log = logging.getLogger(__name__)

PING = 30.0  # seconds between pings to a client of exec


async def start(
    stack: AsyncExitStack, serving: Serving, addresses: Iterable[str], lives: Mapping[str, PodLife], tools: Tools
) -> None:
    """Serves on all of `addresses` until the stack is left. Raises BadInput for a certificate that cannot be used,
    Unavailable for a port that is taken."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(serving.tls_cert_file, serving.tls_private_key_file)
    except OSError as error:
        raise BadInput(f"certificate {serving.tls_cert_file}: cannot be used, {error}") from error
    # Who follows a log and leaves must not be waited for until the container says something.
    runner = web.AppRunner(
        application(serving.token, lives, tools), access_log=None, shutdown_timeout=1.0, handler_cancellation=True
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    for address in addresses:
        try:
            await web.TCPSite(runner, address, serving.port, ssl_context=context).start()
        except OSError as error:
            where = f"address {address}, port {serving.port}"
            raise Unavailable(f"{where}: cannot be listened on, {in_words(error)}") from error


def application(token: str, lives: Mapping[str, PodLife], tools: Tools) -> web.Application:
    routes = Routes(lives, tools)
    app = web.Application(middlewares=[_guard(token)])
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/pods", routes.pods)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", routes.container_logs)
    app.router.add_get("/exec/{namespace}/{pod}/{container}", routes.execute)
    return app


def _guard(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "").encode()
        if request.path != "/healthz" and not hmac.compare_digest(shown, expected):
            raise web.HTTPUnauthorized(text="Unauthorized")
        return await handler(request)

    return guard


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


@dataclass(frozen=True, slots=True)
class Routes:
    lives: Mapping[str, PodLife]
    tools: Tools

    async def pods(self, _: web.Request) -> web.Response:
        items = [{"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(life.pod)} for life in self.lives.values()]
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "PodList", "items": items})
        return web.Response(body=body, content_type="application/json")

    async def container_logs(self, request: web.Request) -> web.StreamResponse:
        life, name = self._life(request), request.match_info["container"]
        wanted = wanted_logs(request.query)
        container = life.containers.get(name)
        source = self._source(life.pod, name, container, previous=_flag(request, "previous"))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        left = wanted.limit
        open_log = container.log if container and not _flag(request, "previous") else None
        chunks = open_log.follow(wanted) if wanted.follow and open_log else _chunks(logs.read(source, wanted))
        async for chunk in chunks:
            piece = chunk if left is None else chunk[:left]
            await response.write(piece)
            if left is not None and (left := left - len(piece)) <= 0:
                break
        await response.write_eof()
        return response

    def _source(self, pod: Pod, name: str, life: ContainerLife | None, *, previous: bool) -> Path:
        """The file to read. Raises 400 if there is none."""
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        known = life.status if life else next((s for s in statuses if s.name == name), None)
        directory = self.tools.sandboxes.directory(pod)
        run = (known.restart_count if known else 0) - (1 if previous else 0)
        path = logs.path_of(directory, name, run)
        if path.exists():
            return path
        if previous:
            raise web.HTTPBadRequest(
                text=f'previous terminated container "{name}" in pod "{pod.metadata.name}" not found'
            )
        reason = known.state.waiting.reason if known and known.state.waiting else "PodInitializing"
        raise web.HTTPBadRequest(text=f'container "{name}" in pod "{pod.metadata.name}" is waiting to start: {reason}')

    async def execute(self, request: web.Request) -> web.StreamResponse:
        life, name = self._life(request), request.match_info["container"]
        container = life.containers.get(name)
        process, program = (container.process, container.program) if container else (None, None)
        if process is None or program is None:
            raise web.HTTPNotFound(text=f'container not running: "{name}" of pod "{life.pod.metadata.name}"')
        wanted = executing.Wanted(
            argv=tuple(request.query.getall("command", [])),
            stdin=_flag(request, "input", "stdin"),
            stdout=_flag(request, "output", "stdout"),
            stderr=_flag(request, "error", "stderr"),
            tty=_flag(request, "tty"),
        )
        if not wanted.argv:
            raise web.HTTPBadRequest(text="no command is given")
        socket = web.WebSocketResponse(protocols=executing.PROTOCOLS, heartbeat=PING, max_msg_size=0)
        await socket.prepare(request)
        env = {**program.env, **({"TERM": "xterm-256color"} if wanted.tty else {})}
        await executing.converse(socket, self.tools.launcher, process, Program(wanted.argv, env, program.cwd), wanted)
        return socket

    def _life(self, request: web.Request) -> PodLife:
        """The pod's, of two with the same name that of the newer. Raises 404."""
        key = (request.match_info["namespace"], request.match_info["pod"])
        found = [life for life in self.lives.values() if (life.pod.metadata.namespace, life.pod.metadata.name) == key]
        if not found:
            raise web.HTTPNotFound(text=f'pod "{key[1]}" does not live on this node')
        return found[-1]


def wanted_logs(query: Mapping[str, str]) -> logs.Wanted:
    """Raises 400."""
    try:
        since = time.time() - float(query["sinceSeconds"]) if query.get("sinceSeconds") else None
        if query.get("sinceTime"):
            since = datetime.fromisoformat(query["sinceTime"]).timestamp()
        return logs.Wanted(
            follow=query.get("follow") in ("true", "1"),
            tail=int(query["tailLines"]) if query.get("tailLines") else None,
            since=since,
            timestamps=query.get("timestamps") in ("true", "1"),
            limit=int(query["limitBytes"]) if query.get("limitBytes") else None,
        )
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"options of logs: {error}") from error


def _flag(request: web.Request, *names: str) -> bool:
    return any(request.query.get(name) in ("true", "1") for name in names)


async def _chunks(found: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in found:
        yield chunk
