"""Connections from a pod or a node: sockets opened in its network namespace, used from our own event loop."""

import asyncio
import contextlib
import errno
import socket
import time
from collections import Counter
from dataclasses import dataclass

from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel import netns

AT_ONCE = 8  # connections that are open side by side in `spread`


class Link:
    """An HTTP/1.1 connection that stays open. The client's own view of it: `peer` is who it believes to talk to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.port: int = writer.get_extra_info("sockname")[1]
        self.peer: str = writer.get_extra_info("peername")[0]

    async def ask(self, path: str = "/hostname") -> str:
        """The answer's body. Raises OSError, TimeoutError, Unavailable for what is no HTTP."""
        async with asyncio.timeout(5):
            self._writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.peer}\r\n\r\n".encode())
            await self._writer.drain()
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
                lengths = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                return (await self._reader.readexactly(int(lengths[0]))).decode(errors="replace").strip()
            except (asyncio.IncompleteReadError, IndexError, ValueError) as error:
                raise Unavailable(f"{self.peer}: the connection broke off in the middle of an answer") from error

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def dial(space: str, address: str, port: int = 80) -> Link:
    """Raises OSError (ConnectionRefusedError, TimeoutError after 3 s)."""
    link = _socket(space)
    try:
        async with asyncio.timeout(3):
            await asyncio.get_running_loop().sock_connect(link, (address, port))
            reader, writer = await asyncio.open_connection(sock=link)
    except BaseException:
        link.close()
        raise
    return Link(reader, writer)


def _socket(space: str) -> socket.socket:
    with netns.inside(space):
        link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.setblocking(False)
    return link


async def name(space: str, address: str, port: int = 80) -> str:
    """Who answers one new connection."""
    link = await dial(space, address, port)
    try:
        return await link.ask()
    finally:
        await link.close()


async def spread(space: str, address: str, count: int) -> Counter[str]:
    """How many of `count` new connections each backend answered; those that failed under their error's name."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> str:
        async with gate:
            try:
                return await name(space, address)
            except (OSError, ClusterIPError) as error:
                return f"({type(error).__name__})"

    async with asyncio.TaskGroup() as all_of_them:
        asked = [all_of_them.create_task(one()) for _ in range(count)]
    return Counter(task.result() for task in asked)


@dataclass(frozen=True, slots=True)
class Attempt:
    what: str  # "connected", "ECONNREFUSED", "ETIMEDOUT"
    milliseconds: float

    def __str__(self) -> str:
        return f"{self.what} after {self.milliseconds:.2f} ms"


async def attempt(space: str, address: str, port: int = 80) -> Attempt:
    """One connect(), timed."""
    link = _socket(space)
    start = time.perf_counter()
    try:
        async with asyncio.timeout(3):
            await asyncio.get_running_loop().sock_connect(link, (address, port))
        what = "connected"
    except TimeoutError:
        what = "ETIMEDOUT"
    except OSError as error:
        what = errno.errorcode.get(error.errno or 0, str(error))
    finally:
        link.close()
    return Attempt(what, (time.perf_counter() - start) * 1000)
