"""Connections out of a namespace, against a small HTTP server inside it."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clusterip.errors import Unavailable
from clusterip.kernel import netns
from clusterip.kernel.run import run
from clusterip.lab.demo import dial

pytestmark = pytest.mark.kernel


@asynccontextmanager
async def server(
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\napp-a\n",
) -> AsyncIterator[tuple[str, int]]:
    """A namespace and a port in it that answers every request on a connection."""
    space = f"t{uuid.uuid4().hex[:8]}"
    netns.create(space)
    try:
        await run(("ip", "link", "set", "lo", "up"), netns=space)
        with netns.inside(space):
            listener = socket.create_server(("127.0.0.1", 0))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(answer)
            except asyncio.IncompleteReadError:
                writer.close()

        async with await asyncio.start_server(serve, sock=listener):
            yield space, listener.getsockname()[1]
    finally:
        netns.delete(space)


async def test_a_link_answers_again_and_again_and_knows_its_peer() -> None:
    async with server() as (space, port):
        link = await dial.dial(space, "127.0.0.1", port)
        assert [await link.ask() for _ in range(3)] == ["app-a"] * 3
        assert link.peer == "127.0.0.1"
        await link.close()


async def test_half_an_answer_is_an_error_that_says_so() -> None:
    async with server(b"HTTP/1.1 200 OK\r\n\r\n") as (space, port):
        with pytest.raises(Unavailable, match="broke off"):
            await dial.name(space, "127.0.0.1", port)


async def test_a_refusal_is_told_with_its_time() -> None:
    async with server() as (space, _):
        refused = await dial.attempt(space, "127.0.0.1", 9)
        assert refused.what == "ECONNREFUSED"
        assert 0 < refused.milliseconds < 1000


async def test_a_connection_is_told_too() -> None:
    async with server() as (space, port):
        assert (await dial.attempt(space, "127.0.0.1", port)).what == "connected"


async def test_failures_are_counted_beside_the_answers() -> None:
    async with server() as (space, _):
        counts = await dial.spread(space, "127.0.0.1", 5)  # nobody listens on port 80
        assert counts == {"(ConnectionRefusedError)": 5}
