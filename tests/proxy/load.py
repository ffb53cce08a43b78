"""Load on one Service while its dataplane changes: short requests from several clients, and connections that stay.

    python -m tests.proxy.load PLACES        runs in a process of its own; a line in, a line out, both JSON

A socket belongs to the namespace and the cgroup that it was opened in, so one process is all clients and all servers.

    {"do": "open", "count": 100}     -> {"open": 100}      long connections, each says something four times a second
    {"do": "begin"}                  -> {}                 short requests from now on
    {"do": "count"}                  -> {"requests": 4711}
    {"do": "slow"}                   -> {}                 ten a second, no more
    {"do": "close"}                  -> {"long": 100, "lost": [...]}       those end
    {"do": "end", "least": 10000}    -> {"requests": ..., "failed": [...]} the requests end, after so many
"""

import asyncio
import contextlib
import json
import socket
import sys
import time
from typing import Any

import uvloop

from clusterip.kernel import netns

PATIENCE = 20.0  # seconds for one answer: a guest without KVM is slow, and a packet that is lost comes again
PACE = 0.25  # seconds between what one long connection says
WORKERS = 6  # requests at a time


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """HTTP: one request and its answer; or lines, each said back, for as long as the client likes."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while line := await reader.readline():
            if line.startswith(b"GET "):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")
                break
            writer.write(line)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


class Clients:
    def __init__(self, places: dict[str, Any]) -> None:
        self.targets = [(c["netns"], c["address"], c["port"]) for c in places["clients"]]
        self.requests = 0
        self.failed: list[str] = []
        self.lost: list[str] = []
        self.workers: list[asyncio.Task[None]] = []
        self.long: list[asyncio.Task[None]] = []
        self.stopping = False  # to make requests
        self.pause = 0.0  # seconds after a request
        self.closing = False  # the long connections

    async def connect(self, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        namespace, address, port = self.targets[number % len(self.targets)]
        with netns.inside(namespace):
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
            return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise

    async def request(self, number: int) -> None:
        self.requests += 1
        began = time.time()
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await self.connect(number)
                with contextlib.closing(writer):
                    writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
                    answer = await reader.read()
            if not answer.endswith(b"\r\n\r\nok\n"):
                raise ConnectionError(f"half an answer: {answer[:40]!r}")
        except (OSError, TimeoutError) as error:
            _, address, port = self.targets[number % len(self.targets)]
            self.failed.append(f"{began:.3f} {address} port {port}: {error!r}")

    async def work(self, number: int) -> None:
        while not self.stopping:
            await self.request(number)
            number += WORKERS
            await asyncio.sleep(self.pause)

    async def stay(self, number: int, opened: asyncio.Semaphore) -> None:
        said = 0
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await self.connect(number)
        except (OSError, TimeoutError) as error:
            self.lost.append(f"connection {number} did not come to be: {error!r}")
            opened.release()
            return
        with contextlib.closing(writer):
            try:
                while not self.closing:
                    said += 1
                    line = f"{number} {said}\n".encode()
                    writer.write(line)
                    async with asyncio.timeout(PATIENCE):
                        if await reader.readline() != line:
                            raise ConnectionError("it ended")
                    if said == 1:
                        opened.release()
                    await asyncio.sleep(PACE)
            except (OSError, TimeoutError) as error:
                _, address, port = self.targets[number % len(self.targets)]
                self.lost.append(
                    f"{time.time():.3f} connection {number} to {address} port {port} after {said}: {error!r}"
                )

    async def do(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "open":
                self.closing, self.lost, opened = False, [], asyncio.Semaphore(0)
                self.long = [asyncio.create_task(self.stay(n, opened)) for n in range(order["count"])]
                for _ in self.long:
                    await opened.acquire()
                return {"open": len(self.long) - len(self.lost)}
            case "begin":
                self.stopping, self.pause, self.requests, self.failed = False, 0.0, 0, []
                self.workers = [asyncio.create_task(self.work(n)) for n in range(WORKERS)]
                return {}
            case "count":
                return {"requests": self.requests}
            case "slow":
                self.pause = WORKERS / 10
                return {}
            case "close":
                self.closing = True
                await asyncio.gather(*self.long)
                return {"long": len(self.long), "lost": self.lost}
            case "end":
                while self.requests < order["least"]:  # noqa: ASYNC110  a request is no event
                    await asyncio.sleep(0.02)
                self.stopping = True
                await asyncio.gather(*self.workers)
                return {"requests": self.requests, "failed": self.failed}
        raise AssertionError(order)


async def main(places: dict[str, Any]) -> None:
    for place in places["servers"]:
        with netns.inside(place["netns"]):
            listener = socket.create_server((place["address"], place["port"]), backlog=512)
        await asyncio.start_server(serve, sock=listener)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    clients = Clients(places)
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    while line := await orders.readline():
        sys.stdout.write(json.dumps(await clients.do(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
