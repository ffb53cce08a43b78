"""`exec` over the API, against a server that speaks the subprotocol."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from clusterip.client.kubeconfig import Connection
from clusterip.errors import Unavailable
from clusterip.lab.podexec import PROTOCOL, Command, ExecFailed, execute

PATH = "/api/v1/namespaces/default/pods/p/exec"
Play = Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]


@asynccontextmanager
async def server(play: Play, containers: tuple[str, ...] = ("only",)) -> AsyncIterator[Connection]:
    """Of one pod. As the API server, it wants a container of several named."""

    async def pod(_: web.Request) -> web.Response:
        spec = {"containers": [{"name": name} for name in containers]}
        return web.json_response({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"}})

    async def handle(request: web.Request) -> web.WebSocketResponse:
        if request.query.get("container", "" if len(containers) > 1 else "only") not in containers:
            raise web.HTTPBadRequest
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        await play(socket, request)
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get(PATH, handle)
    app.router.add_get(PATH.removesuffix("/exec"), pod)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Connection(server=f"http://127.0.0.1:{runner.addresses[0][1]}", token="secret")
    finally:
        await runner.cleanup()


def end(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return b"\3" + json.dumps(failure if code else {"status": "Success"}).encode()


async def test_each_stream_comes_out_where_it_belongs_and_the_status_is_the_commands(
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked: list[tuple[str, list[str]]] = []

    async def play(socket: web.WebSocketResponse, request: web.Request) -> None:
        asked.append((request.headers["Authorization"], request.query.getall("command")))
        for message in (b"\1out", b"\2err", b"\1more", b"\1", end(7), b"\1late"):
            await socket.send_bytes(message)

    async with server(play) as connection:
        assert await execute(connection, Command("default", "p", ("ls", "a b"))) == 7
    assert capfd.readouterr() == ("outmore", "err")
    assert asked == [("Bearer secret", ["ls", "a b"])]


async def test_standard_input_goes_in_whole_and_its_end_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    before = os.dup(0)
    os.dup2(reader, 0)

    async def play(socket: web.WebSocketResponse, request: web.Request) -> None:
        assert request.query["stdin"] == "true"
        got = b""
        async for message in socket:
            if message.data[0] == 255:
                break
            got += message.data[1:]
        await socket.send_bytes(b"\1" + got)
        await socket.send_bytes(end(0))

    try:
        async with server(play) as connection:
            running = asyncio.create_task(execute(connection, Command("default", "p", ("cat",), stdin=True)))
            for word in (b"one ", b"two"):
                os.write(writer, word)
                await asyncio.sleep(0.01)
            os.close(writer)
            assert await running == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reader)
    assert capfd.readouterr().out == "one two"


async def test_a_file_can_be_standard_input(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("input") / "file"
    path.write_bytes(b"x" * 100_000)
    got = bytearray()

    async def play(socket: web.WebSocketResponse, request: web.Request) -> None:
        async for message in socket:
            if message.data[0] == 255:
                break
            got.extend(message.data[1:])
        await socket.send_bytes(end(0))

    fd, before = os.open(path, os.O_RDONLY), os.dup(0)
    os.dup2(fd, 0)
    try:
        async with server(play) as connection:
            assert await execute(connection, Command("default", "p", ("cat",), stdin=True)) == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(fd)
    assert len(got) == 100_000


async def test_a_connection_that_ends_first_is_an_error_and_no_success() -> None:
    async def play(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\1some")

    async with server(play) as connection:
        with pytest.raises(ExecFailed, match="ended before the command did"):
            await execute(connection, Command("default", "p", ("ls",)))


async def test_a_server_that_refuses_is_told() -> None:
    async def play(socket: web.WebSocketResponse, request: web.Request) -> None:
        raise AssertionError("not this pod")

    async with server(play) as connection:
        with pytest.raises(ExecFailed, match="404"):
            await execute(connection, Command("default", "other", ("ls",)))


async def test_without_a_container_the_first_of_several_is_meant(capfd: pytest.CaptureFixture[str]) -> None:
    async def play(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\1" + request.query["container"].encode())
        await socket.send_bytes(end(0))

    async with server(play, containers=("first", "second")) as connection:
        assert await execute(connection, Command("default", "p", ("ls",))) == 0
        assert capfd.readouterr().out == "first"
        assert await execute(connection, Command("default", "p", ("ls",), container="second")) == 0
        assert capfd.readouterr().out == "second"
        with pytest.raises(ExecFailed, match="has no container third"):
            await execute(connection, Command("default", "p", ("ls",), container="third"))


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        await execute(Connection(server="http://127.0.0.1:9"), Command("default", "p", ("ls",)))
