"""The HTTP edge: framing in, framing out, and one place where every error becomes a `Status`."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from clusterip.apiserver import refusals
from clusterip.apiserver.auth import ANONYMOUS, OPEN, Identity, Tokens
from clusterip.apiserver.documents import Decoded
from clusterip.apiserver.fixed import Fixed
from clusterip.apiserver.metrics import Metrics
from clusterip.apiserver.nodes import Nodes
from clusterip.apiserver.output import Answer, refusal
from clusterip.apiserver.proxy import Proxy
from clusterip.apiserver.race import race
from clusterip.apiserver.registry import Registry, selection
from clusterip.apiserver.requests import Target, parse_path
from clusterip.apiserver.stream import Stream
from clusterip.apiserver.verbs import Request, Verbs, watched
from clusterip.apiserver.watch import Wanted, Watch
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.model.status import ApiError

log = logging.getLogger("clusterip.apiserver")

MOST_BYTES = 3 * 1024 * 1024  # of a request's body


@dataclass(frozen=True, slots=True)
class App:
    """An ASGI application. `stopping` ends every watch and stream, so that the server can end."""

    registry: Registry
    verbs: Verbs
    fixed: Fixed
    nodes: Nodes
    proxy: Proxy
    tokens: Tokens
    metrics: Metrics
    stopping: asyncio.Event
    decoded: Decoded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(WebSocket(scope, receive, send))
        elif scope["type"] == "http":
            await _Call(self, scope, receive, send).run()

    def identify(self, path: str, headers: Mapping[str, str]) -> Identity:
        if path.rstrip("/") in OPEN:
            return ANONYMOUS
        return self.tokens.identify(headers.get("authorization", ""))

    async def _websocket(self, socket: WebSocket) -> None:
        """exec is the one thing that comes by WebSocket."""
        path, target = socket.url.path, parse_path(socket.url.path)
        try:
            self.identify(path, socket.headers)
            if target is None or target.subresource != "exec":
                raise refusals.bad_request("only exec is served over WebSocket")
            with self.metrics.watches.labels("CONNECT", target.resource.plural).track_inprogress():
                await self.nodes.exec(socket, target, self.stopping)
        except ApiError as error:
            answer = refusal(error)
            await socket.send_denial_response(Response(answer.body, answer.code, media_type=answer.media_type))
        except ClusterIPError as error:
            answer = refusal(refusals.unavailable(error.message))
            await socket.send_denial_response(Response(answer.body, answer.code, media_type=answer.media_type))


class _Call:
    """One request, from its first byte to its last."""

    def __init__(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        self.app = app
        self.http = HTTPRequest(scope, receive)
        self.scope = scope
        self.receive = receive
        self.send = send
        self.long = False  # a watch or stream: its duration says nothing

    async def run(self) -> None:
        started = time.monotonic()
        path = self.scope["path"]
        target = parse_path(path)
        stream = Stream(self.send)
        try:
            answer = await self._answer(path, target, stream)
        except ClientDisconnect:
            return
        except ApiError as error:
            answer = refusal(error)
        except Unavailable as error:
            log.error("apiserver.unavailable path=%s error=%s", path, error.message)
            answer = refusal(refusals.unavailable(error.message))
        except ClusterIPError as error:
            log.error("apiserver.error path=%s error=%s", path, error.message)
            answer = refusal(refusals.internal(error.message))
        except Exception:  # the last resort: the client is told nothing of our insides, the log everything
            log.exception("apiserver.failed method=%s path=%s", self.http.method, path)
            answer = refusal(refusals.internal("the server's log says more"))
        code = answer.code if answer and not stream.begun else stream.code
        if answer and not stream.begun:
            await self._send(answer)
        elif stream.begun:
            await stream.end()
        self._count(target, code, time.monotonic() - started)

    async def _answer(self, path: str, target: Target | None, stream: Stream) -> Answer | None:
        """None: it was answered by `stream`."""
        identity = self.app.identify(path, self.http.headers)
        if target and target.subresource == "proxy":
            await self.app.proxy.forward(self.http, target, stream)
            return None
        request = await self._request(path, identity)
        if target is None:
            return await self.app.fixed.answer(request)
        if target.subresource == "exec":
            raise refusals.bad_request("exec needs a WebSocket with protocol v5.channel.k8s.io or v4.channel.k8s.io")
        if target.subresource == "log" and request.method == "GET":
            self.long = True
            await self._while_heard("CONNECT", target, self.app.nodes.logs(target, request.parameters, stream))
            return None
        if found := watched(request, target):
            self.long = True
            collection, query = found
            renderer = self.app.verbs.renderer(request, collection)
            wanted = Wanted(collection, query, selection(query, collection.resource), renderer)
            watch = Watch(self.app.registry.store, wanted, self.app.decoded)
            await stream.begin(200, (("Content-Type", "application/json;stream=watch"),))
            await self._while_heard("WATCH", target, watch.run(stream.write))
            return None
        return await self.app.verbs.answer(request, target)

    async def _request(self, path: str, identity: Identity) -> Request:
        headers = self.http.headers
        return Request(
            method=self.http.method,
            path=path,
            parameters=parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True),
            accept=", ".join(headers.getlist("accept")),
            content_type=headers.get("content-type", ""),
            body=await self._body(),
            identity=identity,
        )

    async def _body(self) -> bytes:
        """Raises ApiError 413, before the rest has come."""
        said = self.http.headers.get("content-length", "0")
        if said.isdigit() and int(said) > MOST_BYTES:
            raise refusals.too_large(MOST_BYTES)
        body = bytearray()
        async for chunk in self.http.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise refusals.too_large(MOST_BYTES)
        return bytes(body)

    async def _while_heard(self, verb: str, target: Target, work: Coroutine[None, None, None]) -> None:
        """`work`, until it is done, the client goes away, or the server stops."""
        with self.app.metrics.watches.labels(verb, target.resource.plural).track_inprogress():
            await race(work, self._gone(), self._stopped())

    async def _gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _stopped(self) -> None:
        await self.app.stopping.wait()

    async def _send(self, answer: Answer) -> None:
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
        headers += [(b"warning", _warning(text)) for text in answer.warnings]
        headers += [
            (b"content-type", answer.media_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
            (b"cache-control", b"no-cache, private"),
        ]
        await self.send({"type": "http.response.start", "status": answer.code, "headers": headers})
        await self.send({"type": "http.response.body", "body": answer.body})

    def _count(self, target: Target | None, code: int, seconds: float) -> None:
        verb = "WATCH" if self.long else self.http.method
        resource = target.resource.plural if target else ""
        self.app.metrics.requests.labels(verb, resource, str(code)).inc()
        if not self.long:
            self.app.metrics.seconds.labels(verb, resource).observe(seconds)


def _warning(text: str) -> bytes:
    """RFC 7234's form: code, agent, quoted text."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
    return f'299 - "{quoted}"'.encode()
