"""The name server as a process against an API server: it follows what changes, and lives through what fails."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import pytest
from tests.client.fake_apiserver import FakeApiServer
from tests.dns.free_port import free_port

from clusterip.client.kubeconfig import Connection
from clusterip.dns.process import Settings, serve
from clusterip.dns.server import Listen
from clusterip.dns.zone import Pods
from clusterip.model.resources import ENDPOINT_SLICES, NAMESPACES, SERVICES
from clusterip.model.status import Object

NAME = "app.default.svc.cluster.local"


def service(ip: str) -> Object:
    return {"metadata": {"name": "app", "namespace": "default"}, "spec": {"clusterIP": ip, "clusterIPs": [ip]}}


def endpoints(*addresses: str) -> Object:
    labels = {"kubernetes.io/service-name": "app"}
    return {
        "metadata": {"name": "app-1", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
    }


@asynccontextmanager
async def running(api: str, pods: Pods = Pods.INSECURE, host: str = "127.0.0.1") -> AsyncIterator[tuple[int, int]]:
    """Ports of DNS and HTTP."""
    port, http = free_port(), free_port()
    settings = Settings(
        connection=Connection(server=api),
        listen=(Listen(host, port),),
        http=Listen(host, http),
        domain=("cluster", "local"),
        forward=(),
        ttl=5,
        pods=pods,
    )
    task = asyncio.create_task(serve(settings))
    try:
        yield port, http
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(port: int, name: str = NAME, rtype: str = "A", at: str = "127.0.0.1") -> set[str] | str:
    """The data of the answer, or the name of the error."""
    query = dns.message.make_query(name, rtype)
    reply = await dns.asyncquery.udp(query, at, port=port, timeout=5)
    if reply.rcode() != dns.rcode.NOERROR:
        return dns.rcode.to_text(reply.rcode())
    return {item.to_text() for rrset in reply.answer for item in rrset}


async def get(port: int, path: str, at: str = "127.0.0.1") -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{at}:{port}{path}") as response:
        return response.status, await response.text()


async def until(port: int, expected: set[str] | str, rtype: str = "A", name: str = NAME) -> None:
    end = time.monotonic() + 20
    said: set[str] | str = "nothing"
    while said != expected:
        assert time.monotonic() < end, f"at last: {said}"
        try:
            said = await ask(port, name, rtype)
        except (OSError, EOFError, dns.exception.Timeout):  # it may not listen yet, and then a datagram is lost
            said = "not there"
        await asyncio.sleep(0.01)


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        await server.put(NAMESPACES, {"metadata": {"name": "default"}})
        await server.put(SERVICES, service("10.96.0.20"))
        yield server


async def test_a_stale_answer_stays_right_while_endpoints_come_and_go(api: FakeApiServer) -> None:
    """The address is the Service's for as long as it lives: who remembers it needs to know nothing of pods."""
    async with running(api.url) as (port, _):
        await until(port, {"10.96.0.20"})
        for addresses in (("10.244.1.2",), ("10.244.1.3", "10.244.2.2"), ()):
            await api.put(ENDPOINT_SLICES, endpoints(*addresses))
            await asyncio.sleep(0.05)
            assert await ask(port) == {"10.96.0.20"}


async def test_a_headless_service_follows_its_endpoints(api: FakeApiServer) -> None:
    await api.put(SERVICES, service("None"))
    async with running(api.url) as (port, _):
        await until(port, "NXDOMAIN")
        await api.put(ENDPOINT_SLICES, endpoints("10.244.1.2"))
        await until(port, {"10.244.1.2"})
        await until(port, {"10-244-1-2.app.default.svc.cluster.local."}, "PTR", "2.1.244.10.in-addr.arpa")
        await api.put(ENDPOINT_SLICES, endpoints("10.244.1.2", "10.244.2.7"))
        await until(port, {"10.244.1.2", "10.244.2.7"})


async def test_a_service_that_is_deleted_and_made_anew_has_its_new_address(api: FakeApiServer) -> None:
    async with running(api.url) as (port, _):
        await until(port, {"10.96.0.20"})
        await api.remove(SERVICES, "default", "app")
        await until(port, "NXDOMAIN")
        await api.put(SERVICES, service("10.96.0.99"))
        await until(port, {"10.96.0.99"})


async def test_it_answers_on_while_the_api_server_is_away(api: FakeApiServer) -> None:
    async with running(api.url) as (port, _):
        await until(port, {"10.96.0.20"})
        api.refuse = 3
        await api.hang_up()
        assert await ask(port) == {"10.96.0.20"}
        await api.put(SERVICES, service("10.96.0.21"))
        await until(port, {"10.96.0.21"})


async def test_without_an_address_it_answers_on_those_of_both_families(api: FakeApiServer) -> None:
    async with running(api.url, host="") as (port, http):
        await until(port, {"10.96.0.20"})
        assert await ask(port, at="::1") == {"10.96.0.20"}
        assert [(await get(http, "/health", at))[0] for at in ("127.0.0.1", "[::1]")] == [200, 200]


async def test_it_is_ready_when_it_knows_the_names_and_not_before() -> None:
    async with running("http://127.0.0.1:9") as (port, http):
        await until(port, "SERVFAIL")
        assert (await get(http, "/ready"))[0] == 503
        assert (await get(http, "/health"))[0] == 200


async def test_it_tells_prometheus_what_it_did(api: FakeApiServer) -> None:
    async with running(api.url) as (port, http):
        await until(port, {"10.96.0.20"})
        assert (await get(http, "/ready"))[0] == 200
        status, text = await get(http, "/metrics")
        assert status == 200
        assert 'clusterip_dns_responses_total{rcode="NOERROR"}' in text
