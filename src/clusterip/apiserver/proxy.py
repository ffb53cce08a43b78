"""The `proxy` subresource: a request passed on to a Service's ready endpoint, to a pod, or to a node's agent."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp
from starlette.requests import Request as HTTPRequest

from clusterip.apiserver import documents, refusals
from clusterip.apiserver.nodes import Nodes
from clusterip.apiserver.registry import Registry
from clusterip.apiserver.requests import Target
from clusterip.apiserver.stream import Stream
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES
from clusterip.model.status import Object

# What belongs to one connection, not to the message (RFC 9110, 7.6.1); and what proves who the client is to us only.
_NOT_PASSED_ON = frozenset(
    [
        *("authorization", "proxy-authenticate", "proxy-authorization"),
        *("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
    ]
)


@dataclass(frozen=True, slots=True)
class ProxyName:
    """`[scheme:]name[:port]` of a proxy path."""

    scheme: str  # "http" or "https"
    name: str
    port: str  # name or number, "": not said


def parse_name(text: str, kind: str) -> ProxyName:
    """Raises ApiError 400."""
    match text.split(":"):
        case [name] if name:
            return ProxyName("http", name, "")
        case [name, port] if name:
            return ProxyName("http", name, port)
        case ["http" | "https" | "" as scheme, name, port] if name:
            return ProxyName(scheme or "http", name, port)
        case _:
            raise refusals.bad_request(f"invalid {kind} request {text!r}: write [http:|https:]NAME[:PORT]")


@dataclass(frozen=True, slots=True)
class Proxy:
    registry: Registry
    nodes: Nodes

    async def forward(self, http: HTTPRequest, target: Target, stream: Stream) -> None:
        """Raises ApiError."""
        where = await self._where(target)
        path = quote(target.rest, safe="/:@!$&'()*+,;=~-._") if target.rest else ""
        query = http.scope["query_string"].decode("latin-1")
        url = f"{where}/{path}" + (f"?{query}" if query else "")
        headers = [(k, v) for k, v in http.headers.items() if k.lower() not in _NOT_PASSED_ON]
        headers.append(("X-Forwarded-For", http.client.host if http.client else "unknown"))
        has_body = http.headers.get("content-length", "0") != "0" or "transfer-encoding" in http.headers
        try:
            async with self.nodes.session.request(
                http.method,
                url,
                headers=headers if where.startswith("https") and target.resource is NODES else [*headers, _NO_TOKEN],
                data=http.stream() if has_body else None,
                allow_redirects=False,
                skip_auto_headers=("User-Agent",),
            ) as answer:
                await stream.begin(answer.status, _passed_back(answer.headers.items()))
                async for piece in answer.content.iter_any():
                    await stream.write(piece)
        except (aiohttp.ClientError, OSError) as error:
            if not stream.begun:
                raise refusals.unavailable(f"error trying to reach service: {error}") from error

    async def _where(self, target: Target) -> str:
        """The URL of whoever answers, without a path."""
        if target.resource is SERVICES:
            return await self._service(target, parse_name(target.name, "service"))
        if target.resource is NODES:
            node = parse_name(target.name, "node")
            address = await self.nodes.address(node.name)
            return f"{node.scheme}:{address.partition(':')[2].rpartition(':')[0]}:{node.port}" if node.port else address
        return await self._pod(target, parse_name(target.name, "pod"))

    async def _service(self, target: Target, asked: ProxyName) -> str:
        service = documents.decode(await self.registry.get(Target(SERVICES, target.namespace, asked.name)))
        port = _service_port(service, asked)
        slices = await self.registry.store.list(f"/{ENDPOINT_SLICES.qualified}/{target.namespace}/")
        found = [
            endpoint
            for item in slices.items
            if (documents.head(item).metadata.labels or {}).get("kubernetes.io/service-name") == asked.name
            for endpoint in ready_endpoints(documents.decode(item), port.get("name") or "")
        ]
        if not found:
            raise refusals.unavailable(f'no endpoints available for service "{asked.name}"')
        return f"{asked.scheme}://{random.choice(found)}"  # noqa: S311  spreads load, guards nothing

    async def _pod(self, target: Target, asked: ProxyName) -> str:
        pod = documents.decode(await self.registry.get(Target(target.resource, target.namespace, asked.name)))
        address = (pod.get("status") or {}).get("podIP", "")
        if not address:
            raise refusals.unavailable(f"pod {asked.name}: address not allocated")
        declared = [p for c in pod["spec"].get("containers") or () for p in c.get("ports") or ()]
        port = asked.port or next((str(p["containerPort"]) for p in declared), "80")
        if not port.isdigit():
            named = next((str(p["containerPort"]) for p in declared if p.get("name") == port), "")
            if not named:
                raise refusals.unavailable(f"pod {asked.name}: no port is named {port!r}")
            port = named
        return f"{asked.scheme}://{_host(address)}:{port}"


_NO_TOKEN = ("Authorization", "")  # in place of the session's own, which is for node agents


def _service_port(service: Object, asked: ProxyName) -> Object:
    """The port of the Service that is meant: by name or number, or its first. Raises ApiError 503."""
    ports: Sequence[Object] = (service.get("spec") or {}).get("ports") or ()
    for port in ports:
        if not asked.port or asked.port in (port.get("name"), str(port.get("port"))):
            return port
    raise refusals.unavailable(f'no service port "{asked.port}" found for service "{asked.name}"')


def ready_endpoints(endpoint_slice: Object, port_name: str) -> list[str]:
    """ "address:port" of what is ready, for the slice's port of that name."""
    port = next((p for p in endpoint_slice.get("ports") or () if (p.get("name") or "") == port_name), None)
    if port is None or not port.get("port") or endpoint_slice.get("addressType") == "FQDN":
        return []
    return [
        f"{_host(endpoint['addresses'][0])}:{port['port']}"
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _passed_back(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    # The body comes decoded and in pieces: its length and its encoding are ours to say.
    return [(k, v) for k, v in headers if k.lower() not in _NOT_PASSED_ON | {"content-encoding"}]
