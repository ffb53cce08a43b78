"""Logs and exec, piped from the node agent; and requests passed on to pods and Services."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.apiserver.agent import TOKEN, agent
from tests.apiserver.serving import PODS, SERVICES, SETTINGS, Api, pod, running, service

from clusterip.apiserver import documents
from clusterip.apiserver.nodes import Access
from clusterip.apiserver.proxy import ProxyName, parse_name
from clusterip.model.status import ApiError
from clusterip.store.base import Put


@asynccontextmanager
async def with_agent(tmp_path: Path) -> AsyncIterator[Api]:
    """A cluster of one node, whose agent listens on loopback, and a pod `a` on it."""
    async with agent(tmp_path) as (port, ca), running(replace(SETTINGS, nodes=Access(ca, TOKEN))) as api:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}, "status": status})
        await api.ok("POST", PODS, pod("a", nodeName="node-1"))
        yield api


async def test_logs_come_from_the_node(tmp_path: Path) -> None:
    async with with_agent(tmp_path) as api:
        reply = await api("GET", f"{PODS}/a/log?follow=true&tailLines=5&container=echo")
        assert reply.code == 200
        asked, *lines = reply.body.decode().splitlines()
        assert asked == "/containerLogs/default/a/echo [('follow', 'true'), ('tailLines', '5')]"
        assert lines == ["one", "two"]


async def test_logs_that_cannot_be_had_say_why(tmp_path: Path) -> None:
    async with with_agent(tmp_path) as api:
        two = pod("two", nodeName="node-1")
        two["spec"]["containers"] = [{"name": "x", "image": "i"}, {"name": "waiting", "image": "i"}]
        await api.ok("POST", PODS, two)
        await api.ok("POST", PODS, pod("nowhere"))
        await api.ok("POST", PODS, pod("lost", nodeName="node-9"))
        for path, code, words in (
            (f"{PODS}/none/log", 404, 'pods "none" not found'),
            (f"{PODS}/two/log", 400, "choose one of: [x waiting]"),
            (f"{PODS}/two/log?container=y", 400, "container y is not valid for pod two"),
            (f"{PODS}/two/log?container=waiting", 400, "is waiting to start"),
            (f"{PODS}/nowhere/log", 400, "does not have a host assigned"),
            (f"{PODS}/lost/log", 404, 'nodes "node-9" not found'),
        ):
            status = await api.refused("GET", path)
            assert status["code"] == code
            assert words in status["message"]


async def test_a_node_that_does_not_answer_is_said_to_be_unavailable(tmp_path: Path) -> None:
    async with with_agent(tmp_path) as api:
        nowhere = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}
        await api.merge("/api/v1/nodes/node-1/status", nowhere)
        status = await api.refused("GET", f"{PODS}/a/log")
        assert (status["code"], status["reason"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_exec_is_piped_both_ways(tmp_path: Path, protocol: str) -> None:
    async with with_agent(tmp_path) as api, asyncio.timeout(10):
        url = f"{api.url}{PODS}/a/exec?command=say&command=hello&stdin=true&stdout=true"
        async with api.session.ws_connect(url, protocols=(protocol,)) as socket:
            assert socket.protocol == protocol
            assert await socket.receive_bytes() == b"\x01say hello\n"
            await socket.send_bytes(b"\x00abc")
            assert await socket.receive_bytes() == b"\x01ABC"
            await socket.send_bytes(b"\xff\x00")
            assert (await socket.receive_bytes()).startswith(b'\x03{"metadata"')
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@pytest.mark.parametrize(
    ("query", "protocol", "code"),
    [
        ("command=x&stdout=true", "v1.channel.k8s.io", 400),
        ("stdout=true", "v5.channel.k8s.io", 400),
        ("command=x", "v5.channel.k8s.io", 400),
        ("command=x&stdout=true&container=none", "v5.channel.k8s.io", 400),
    ],
)
async def test_an_exec_that_cannot_be_is_refused_before_it_begins(
    tmp_path: Path, query: str, protocol: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_agent(tmp_path) as api:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await api.session.ws_connect(f"{api.url}{PODS}/a/exec?{query}", protocols=(protocol,))
        assert caught.value.status == code
        assert (await api.refused("POST", f"{PODS}/a/exec?command=x&stdout=true"))["code"] == 400
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]


# --- proxy -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def backend() -> AsyncIterator[int]:
    """An HTTP server on loopback that tells what it was asked."""

    async def tell(request: web.Request) -> web.Response:
        said = {"path": request.path_qs, "method": request.method, "body": (await request.read()).decode()}
        said["authorization"] = request.headers.get("Authorization", "")
        return web.json_response(said, status=int(request.query.get("code", 200)))

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", tell)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def put_slice(api: Api, port: int, *, ready: bool = True) -> None:
    """Past validation, which would not take the loopback address that the test's backend has."""
    obj: dict[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "a-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }
    key = "/endpointslices.discovery.k8s.io/default/a-1"
    await api.parts.registry.store.commit((), (Put(key, documents.value(obj)),))


async def test_a_request_is_passed_on_to_a_ready_endpoint(api: Api) -> None:
    """B30"""
    async with backend() as port:
        await api.ok("POST", SERVICES, service("a", ports=[{"name": "http", "port": 80}]))
        await put_slice(api, port)
        for name in ("a", "a:http", "a:80", "http:a:80"):
            reply = await api("POST", f"{SERVICES}/{name}/proxy/some/path?x=1", b"hello", authorization="Bearer mine")
            assert reply.code == 200
            assert reply.json == {"path": "/some/path?x=1", "method": "POST", "body": "hello", "authorization": ""}
        assert (await api("GET", f"{SERVICES}/a/proxy/?code=418")).code == 418
        assert (await api.ok("GET", f"{SERVICES}/a/proxy"))["path"] == "/"


async def test_a_proxy_that_leads_nowhere_says_why(api: Api) -> None:
    """E53, E54"""
    async with backend() as port:
        await api.ok("POST", SERVICES, service("a", ports=[{"name": "http", "port": 80}]))
        status = await api.refused("GET", f"{SERVICES}/a/proxy/")
        assert (status["code"], status["reason"]) == (503, "ServiceUnavailable")
        assert status["message"] == 'no endpoints available for service "a"'
        await put_slice(api, port, ready=False)
        assert (await api.refused("GET", f"{SERVICES}/a/proxy/"))["code"] == 503
        assert (await api.refused("GET", f"{SERVICES}/a:81/proxy/"))["code"] == 503
        assert (await api.refused("GET", f"{SERVICES}/none/proxy/"))["code"] == 404
        assert (await api.refused("GET", f"{SERVICES}/ftp:a:80/proxy/"))["code"] == 400
        assert (await api.refused("GET", f"{SERVICES}/a:b:c:d/proxy/"))["code"] == 400
    await put_slice(api, port)
    assert (await api.refused("GET", f"{SERVICES}/a/proxy/"))["code"] == 503, "nobody listens there any more"


async def test_a_request_is_passed_on_to_a_pod(api: Api) -> None:
    async with backend() as port:
        await api.ok("POST", PODS, pod("a", nodeName="node-1"))
        assert (await api.refused("GET", f"{PODS}/a/proxy/"))["code"] == 503
        item = await api.parts.registry.store.get("/pods/default/a")
        assert item is not None
        obj = documents.decode(item)
        obj["status"]["podIP"] = "127.0.0.1"
        await api.parts.registry.store.commit((), (Put("/pods/default/a", documents.value(obj)),))
        assert (await api.ok("PUT", f"{PODS}/a:{port}/proxy/x", b"y"))["body"] == "y"


def test_a_proxy_name_is_scheme_name_and_port() -> None:
    assert parse_name("a", "service") == ProxyName("http", "a", "")
    assert parse_name("a:web", "service") == ProxyName("http", "a", "web")
    assert parse_name("https:a:", "service") == ProxyName("https", "a", "")
    for wrong in ("", ":80", "a:b:c:d", "ftp:a:1"):
        with pytest.raises(ApiError):
            parse_name(wrong, "service")
