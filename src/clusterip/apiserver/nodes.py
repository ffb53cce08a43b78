"""Pods' logs and exec: asked of the node agent that runs the pod, and piped through.

The agent answers on its node's InternalIP, port 10250, with the kubelet's own paths, over TLS and with a token.
"""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import aiohttp
from starlette.websockets import WebSocket, WebSocketDisconnect

from clusterip.apiserver import documents, refusals
from clusterip.apiserver.race import race
from clusterip.apiserver.registry import Registry
from clusterip.apiserver.requests import Parameters, Target, flag, text
from clusterip.apiserver.stream import Stream
from clusterip.errors import Unavailable
from clusterip.model.resources import NODES
from clusterip.model.status import ApiError, Object

PORT = 10250
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")  # of exec, best first
_LOG_OPTIONS = ("follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True, slots=True)
class Access:
    """How the node agents know us, and how we know them."""

    ca_file: Path | None = None  # None: their certificate is not checked
    token: str = ""

    def tls(self) -> ssl.SSLContext:
        if self.ca_file is not None:
            return ssl.create_default_context(cafile=str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without reading the authorities of this machine
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class Nodes:
    """Use as an async context manager."""

    def __init__(self, registry: Registry, access: Access) -> None:
        self.registry = registry
        self.access = access
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Nodes":
        headers = {"Authorization": f"Bearer {self.access.token}"} if self.access.token else {}
        connector = aiohttp.TCPConnector(ssl=self.access.tls(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "Nodes is used outside of `async with`"
        return self._session

    async def address(self, node: str) -> str:
        """ "https://192.168.50.11:10250". Raises ApiError."""
        found = documents.decode(await self.registry.get(Target(NODES, "", node)))
        addresses = (found.get("status") or {}).get("addresses") or ()
        internal = next((one["address"] for one in addresses if one.get("type") == "InternalIP"), "")
        if not internal:
            raise refusals.unavailable(f"node {node}: it has no InternalIP")
        port = (found.get("status") or {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port") or PORT
        return f"https://{f'[{internal}]' if ':' in internal else internal}:{port}"

    async def _container(self, target: Target, parameters: Parameters, path: str) -> str:
        """The URL of `path` for the pod's container. Raises ApiError."""
        pod = documents.decode(await self.registry.get(target))
        container = choose_container(pod, text(parameters, "container"))
        node = pod["spec"].get("nodeName", "")
        if not node:
            raise refusals.bad_request(f"pod {target.name} does not have a host assigned")
        pieces = "/".join(quote(piece, safe="") for piece in (path, target.namespace, target.name, container))
        return f"{await self.address(node)}/{pieces}"

    async def logs(self, target: Target, parameters: Parameters, stream: Stream) -> None:
        query = {name: text(parameters, name) for name in _LOG_OPTIONS if text(parameters, name)}
        url = await self._container(target, parameters, "containerLogs")
        try:
            async with self.session.get(url, params=query) as answer:
                if answer.status >= 300:
                    raise await _refusal(answer, target)
                await stream.begin(200, (("Content-Type", "text/plain"),))
                async for piece in answer.content.iter_any():
                    await stream.write(piece)
        except (aiohttp.ClientError, OSError) as error:
            if not stream.begun:
                raise Unavailable(f"logs of pod {target.namespace}/{target.name}: {url}: {error}") from error

    async def exec(self, socket: WebSocket, target: Target, stopping: asyncio.Event) -> None:
        """Pipes the client's WebSocket to the agent's, both ways, until either ends."""
        parameters = {name: socket.query_params.getlist(name) for name in socket.query_params}
        offered = [one.strip() for line in socket.headers.getlist("sec-websocket-protocol") for one in line.split(",")]
        chosen = next((one for one in PROTOCOLS if one in offered), "")
        if not chosen:
            raise refusals.bad_request(f"exec: WebSocket protocol must be one of {', '.join(PROTOCOLS)}")
        if not parameters.get("command"):
            raise refusals.bad_request("exec: you must specify at least 1 command for the container")
        streams = [(theirs, "1") for ours, theirs in _STREAMS if flag(parameters, ours)]
        if not streams:
            raise refusals.bad_request("exec: you must specify at least 1 of stdin, stdout, stderr")
        query = urlencode([*(("command", one) for one in parameters["command"]), *streams])
        url = await self._container(target, parameters, "exec")
        try:
            async with self.session.ws_connect(f"{url}?{query}", protocols=(chosen,), max_msg_size=0) as agent:
                await socket.accept(subprotocol=chosen)
                await _pipe(socket, agent, stopping)
        except aiohttp.WSServerHandshakeError as error:
            raise refusals.unavailable(f"exec in pod {target.name}: the node answered {error.status}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"exec in pod {target.namespace}/{target.name}: {url}: {error}") from error


_STREAMS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))  # API's name, kubelet's


async def _pipe(socket: WebSocket, agent: aiohttp.ClientWebSocketResponse, stopping: asyncio.Event) -> None:
    async def up() -> None:
        with suppress(WebSocketDisconnect):
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await agent.send_bytes(message.get("bytes") or (message.get("text") or "").encode())

    async def down() -> None:
        async for message in agent:
            if message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                data = message.data if isinstance(message.data, bytes) else message.data.encode()
                await socket.send_bytes(data)
        await socket.close(agent.close_code or 1000)

    async def stopped() -> None:
        await stopping.wait()

    await race(up(), down(), stopped())


def choose_container(pod: Object, asked: str) -> str:
    """The one asked for, the one the pod names as its default, or its only one. Raises ApiError 400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers: list[str] = [one["name"] for one in spec.get("containers") or ()]
    known: Sequence[str] = [*containers, *(one["name"] for one in spec.get("initContainers") or ())]
    asked = asked or (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER, "")
    if asked:
        if asked not in known:
            raise refusals.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(containers) != 1:
        choices = " ".join(containers)
        raise refusals.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    return containers[0]


async def _refusal(answer: aiohttp.ClientResponse, target: Target) -> ApiError:
    """What the agent would not do, in the API's words."""
    said = (await answer.read())[:2000].decode("utf-8", "replace").strip()
    match answer.status:
        case 400:
            return refusals.bad_request(said)
        case 404:
            return ApiError(404, "NotFound", said or f"pod {target.name} is not on its node")
        case code:
            return refusals.unavailable(f"the node answered {code}: {said}")
