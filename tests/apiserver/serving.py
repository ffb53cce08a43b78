"""A real API server on loopback, on a store in memory, and a plain HTTP client for it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Any

import aiohttp

from clusterip.apiserver.bootstrap import Advertised
from clusterip.apiserver.cidrs import step
from clusterip.apiserver.serve import Parts, Server, Settings, assembled, bound, configured

SETTINGS = Settings(cidrs=(ip_network("10.96.0.0/16"),), data_dir=None, advertised=Advertised("192.168.50.1", 6443))
NAMESPACE = "/api/v1/namespaces/default"
SERVICES = f"{NAMESPACE}/services"
CONFIG_MAPS = f"{NAMESPACE}/configmaps"
PODS = f"{NAMESPACE}/pods"


@dataclass(frozen=True, slots=True)
class Reply:
    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Api:
    """The server under test, and the simplest way to talk to it."""

    url: str
    parts: Parts
    session: aiohttp.ClientSession

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """`body`: bytes as they are, anything else as JSON. Header `content_type` becomes Content-Type."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            named.setdefault("content-type", "application/json")
        async with self.session.request(method, self.url + path, data=data, headers=named) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of an answer that must be a success."""
        reply = await self(method, path, body, **headers)
        assert reply.code < 300, reply.body
        return reply.json

    async def refused(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The Status of an answer that must be none."""
        reply = await self(method, path, body, **headers)
        assert reply.code >= 400, reply.body
        assert reply.json["kind"] == "Status"
        assert reply.json["code"] == reply.code
        return reply.json

    async def merge(self, path: str, patch: Any) -> Any:
        return await self.ok("PATCH", path, patch, content_type="application/merge-patch+json")

    async def watch(self, path: str, **headers: str) -> AsyncGenerator[Any, None]:
        """The events of a watch, until the server ends it."""
        async with self.session.get(self.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.read()
            async for line in answer.content:
                yield json.loads(line)

    async def events(self, path: str, count: int, **headers: str) -> list[Any]:
        """The first `count` events of a watch."""
        seen: list[Any] = []
        async with asyncio.timeout(10), aclosing(self.watch(path, **headers)) as stream:
            async for event in stream:
                seen.append(event)
                if len(seen) == count:
                    return seen
        raise AssertionError(f"the watch ended after {seen}")


@asynccontextmanager
async def running(settings: Settings = SETTINGS) -> AsyncIterator[Api]:
    listener = bound("127.0.0.1", 0)
    async with assembled(settings) as parts, asyncio.TaskGroup() as group:
        await step(parts.registry)
        server = Server(configured(parts.app, settings), parts.app.stopping)
        group.create_task(server.serve([listener]))
        try:
            async with aiohttp.ClientSession() as session:
                yield Api(f"http://127.0.0.1:{listener.getsockname()[1]}", parts, session)
        finally:
            parts.app.stopping.set()


def with_range(*cidrs: str, node_ports: tuple[int, int] = (30000, 32767)) -> Settings:
    return replace(SETTINGS, cidrs=tuple(ip_network(cidr) for cidr in cidrs), node_ports=node_ports)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}], **spec},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "echo", "image": "clusterip/echo"}], **spec},
    }
