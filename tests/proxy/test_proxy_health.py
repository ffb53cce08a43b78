import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from clusterip.model.objects import Node, NodeSpec, ObjectMeta, Taint
from clusterip.proxy.health import Health, eligible
from clusterip.proxy.service_health import Check, ServiceHealth, checks, listen
from clusterip.services.table import Entry, PortName
from clusterip.services.tracker import ServiceName

WALL = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def health() -> Health:
    return Health(["IPv4", "IPv6"], sync_period=30)


def test_to_start_is_to_be_well() -> None:
    answer = health().livez(0.0, WALL)
    assert answer.code == 200
    assert answer.body["lastUpdated"] == answer.body["currentTime"] == "2027-01-15T08:00:00.000000Z"
    assert "nodeEligible" not in answer.body


def test_what_waits_for_twice_the_sync_period_makes_unwell() -> None:
    h = health()
    h.updated("IPv4", 5.0)
    h.queued("IPv4", 10.0)
    h.queued("IPv4", 65.0)  # what came later does not make it younger
    assert h.livez(69.9, WALL).code == 200
    answer = h.livez(70.0, WALL)
    assert answer.code == 503
    assert answer.body["healthy"] is False
    assert answer.body["lastUpdated"] == "2027-01-15T07:58:55.000000Z", "65 s ago"
    assert answer.body["status"]["IPv4"]["healthy"] is False
    assert answer.body["status"]["IPv6"]["healthy"] is True
    h.updated("IPv4", 71.0)
    assert h.livez(200.0, WALL).code == 200


def test_what_never_was_updated_says_so() -> None:
    h = health()
    h.queued("IPv4", 0.0)
    assert h.healthz(60.0, WALL).body["lastUpdated"] == "0001-01-01T00:00:00Z"


def test_an_ineligible_node_fails_healthz_alone() -> None:
    h = health()
    h.node_eligible = False
    assert h.healthz(0.0, WALL).code == 503
    assert h.healthz(0.0, WALL).body["healthy"] is True
    assert h.livez(0.0, WALL).code == 200


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (None, False),
        (Node(), True),
        (Node(metadata=ObjectMeta(deletion_timestamp="2027-01-15T08:00:00Z")), False),
        (Node(spec=NodeSpec(taints=(Taint("ToBeDeletedByClusterAutoscaler"),))), False),
        (Node(spec=NodeSpec(taints=(Taint("other"),))), True),
        (Node(spec=NodeSpec(taints=None)), True),
    ],
)
def test_nodes_that_go_are_not_eligible(node: Node | None, expected: bool) -> None:
    assert eligible(node) is expected


def entry(port: str, *ready: str, check: int = 32000) -> Entry:
    name = PortName("default", "web", port)
    return Entry(name, "IPv4", "TCP", 80, "10.96.0.10", health_check_node_port=check, local_ready=ready)


def test_an_address_counts_once_over_all_ports() -> None:
    found = checks([entry("a", "10.244.1.2", "10.244.1.3"), entry("b", "10.244.1.2"), entry("c", check=0)])
    assert found == {32000: Check(ServiceName("default", "web"), 2)}


@pytest.fixture
async def servers() -> AsyncIterator[ServiceHealth]:
    well = True

    async def failed(service: ServiceName, reason: str) -> None:
        failures.append(f"{service.name}: {reason}")

    failures: list[str] = []
    made = ServiceHealth("IPv4", lambda: well, failed)
    made.failures = failures  # type: ignore[attr-defined]
    yield made
    await made.close()


def free_port() -> int:
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


async def get(port: int, path: str = "/") -> tuple[int, bytes, dict[str, str]]:
    def fetch() -> tuple[int, bytes, dict[str, str]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
                return response.status, response.read(), dict(response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)

    return await asyncio.to_thread(fetch)


LOOPBACK = ("127.0.0.1",)


async def test_any_path_tells_whether_a_backend_is_here(servers: ServiceHealth) -> None:
    port = free_port()
    name = ServiceName("default", "web")
    await servers.update({port: Check(name, 2)}, LOOPBACK)
    code, body, headers = await get(port, "/any/path?at=all")
    assert code == 200
    assert body == (
        b'{"service": {"namespace": "default", "name": "web"}, "localEndpoints": 2, "serviceProxyHealthy": true}'
    )
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Load-Balancing-Endpoint-Weight"] == "2"
    await servers.update({port: Check(name, 0)}, LOOPBACK)
    assert (await get(port))[0] == 503
    await servers.update({}, LOOPBACK)
    with pytest.raises(urllib.error.URLError):
        await get(port)


async def test_a_port_that_is_taken_is_told_and_tried_again(servers: ServiceHealth) -> None:
    with closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = {port: Check(ServiceName("default", "web"), 1)}
        await servers.update(wanted, LOOPBACK)
        assert servers.unopened
        assert servers.failures[0].startswith(f"web: cannot listen on health check node port {port}")  # type: ignore[attr-defined]
    await servers.update(wanted, LOOPBACK)
    assert (await get(port))[0] == 200
