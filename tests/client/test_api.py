import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from tests.client.fake_apiserver import FakeApiServer

from clusterip.client.api import Api, EventKind, PatchKind, url_path
from clusterip.client.kubeconfig import Connection
from clusterip.errors import Unavailable
from clusterip.model.objects import ObjectMeta, Service, ServicePort, ServiceSpec
from clusterip.model.resources import DEPLOYMENTS, NODES, PODS, SERVICES
from clusterip.model.status import ApiError, Object


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def api(server: FakeApiServer) -> AsyncIterator[Api]:
    async with Api(Connection(server.url)) as api:
        yield api


def service(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_paths_of_core_grouped_and_cluster_wide_kinds() -> None:
    assert url_path(PODS, "default", "web", "binding") == "/api/v1/namespaces/default/pods/web/binding"
    assert url_path(DEPLOYMENTS, "") == "/apis/apps/v1/deployments"
    assert url_path(NODES, "ignored", "node-1") == "/api/v1/nodes/node-1"


async def test_what_is_created_can_be_got_as_a_value(api: Api) -> None:
    value = Service(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=ServiceSpec(cluster_ip="10.96.0.10", ports=(ServicePort(port=80),)),
    )
    document = await api.create(SERVICES, "default", value)
    assert document["kind"] == "Service"
    got = await api.get(SERVICES, "default", "web", Service)
    assert got.spec == value.spec
    assert got.metadata.resource_version == document["metadata"]["resourceVersion"]


async def test_an_error_keeps_the_servers_code_reason_and_words(api: Api) -> None:
    with pytest.raises(ApiError, match='services "none" not found') as caught:
        await api.get(SERVICES, "default", "none", Service)
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")


async def test_a_stale_update_is_a_conflict(api: Api, server: FakeApiServer) -> None:
    old = await server.put(SERVICES, service("web"))
    await server.put(SERVICES, service("web", type="NodePort"))
    with pytest.raises(ApiError) as caught:
        await api.update(SERVICES, "default", "web", old)
    assert caught.value.code == 409


async def test_a_merge_patch_changes_and_a_status_patch_touches_only_the_status(
    api: Api, server: FakeApiServer
) -> None:
    await server.put(SERVICES, service("web"))
    await api.patch(SERVICES, "default", "web", {"metadata": {"labels": {"a": "b"}}})
    await api.patch(SERVICES, "default", "web", {"status": {"x": 1}, "spec": None}, subresource="status")
    stored = server.objects[SERVICES, "default", "web"]
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert (stored["spec"], stored["status"]) == ({}, {"x": 1})
    assert PatchKind.STRATEGIC.value == "application/strategic-merge-patch+json"


async def test_a_deletion_minds_the_uid(api: Api, server: FakeApiServer) -> None:
    await server.put(SERVICES, service("web"))
    with pytest.raises(ApiError) as caught:
        await api.delete(SERVICES, "default", "web", uid="another")
    assert caught.value.code == 409
    await api.delete(SERVICES, "default", "web")
    assert not server.objects


async def test_a_list_is_read_in_pages_at_one_revision(api: Api, server: FakeApiServer) -> None:
    for number in range(7):
        await server.put(SERVICES, service(f"s{number}"))
    server.page = 3
    listing = await api.list(SERVICES, Service)
    assert [s.metadata.name for s in listing.items] == [f"s{n}" for n in range(7)]
    assert listing.resource_version == str(server.revision)
    assert len(server.requests) == 3


async def test_a_list_whose_pages_expire_is_read_again_whole(api: Api, server: FakeApiServer) -> None:
    for number in range(4):
        await server.put(SERVICES, service(f"s{number}"))
    server.page = 2
    task = asyncio.create_task(api.list(SERVICES, Service))
    while not server._snapshots:  # noqa: ASYNC110 (the client is between two pages)
        await asyncio.sleep(0)
    await server.forget()
    assert len((await task).items) == 4


async def test_a_watch_tells_what_happens_and_bookmarks(api: Api, server: FakeApiServer) -> None:
    start = str(server.revision)
    await server.put(SERVICES, service("web"))
    await server.put(PODS, {"metadata": {"name": "p", "namespace": "default"}})
    await server.remove(SERVICES, "default", "web")
    kinds, version = [], ""
    async for event in api.watch(SERVICES, Service, resource_version=start):
        kinds.append(event.kind)
        version = event.resource_version
        if event.kind is EventKind.BOOKMARK:
            break
    assert kinds == [EventKind.ADDED, EventKind.DELETED, EventKind.BOOKMARK]
    assert version == str(server.revision)


async def test_a_watch_from_a_forgotten_revision_is_a_410(api: Api, server: FakeApiServer) -> None:
    await server.put(SERVICES, service("web"))
    await server.forget()
    with pytest.raises(ApiError) as caught:
        async for _ in api.watch(SERVICES, Service, resource_version="10"):
            pass
    assert caught.value.code == 410


async def test_a_server_that_is_not_there_is_said_with_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with Api(Connection(url)) as api:
            with pytest.raises(Unavailable, match=f"API server {url}: cannot be reached"):
                await api.list(SERVICES, Service)


async def test_a_page_that_is_no_status_is_quoted() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 16\r\n\r\n<html>No</html>\n")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, Api(Connection(url)) as api:
        with pytest.raises(ApiError, match="answered 502, <html>No</html>"):
            await api.list(SERVICES, Service)
