"""The sockets: datagrams read by the batch, streams with several questions each."""

import asyncio
import contextlib
import logging
import socket
from dataclasses import dataclass
from typing import Never

from clusterip.dns.query import STREAM_SIZE
from clusterip.dns.responder import Pending, Responder
from clusterip.dns.tally import Tally
from clusterip.errors import BadInput, Unavailable

log = logging.getLogger(__name__)

BATCH = 64  # datagrams read per wake-up, so that a flood of them does not starve the streams
LARGEST_QUERY = 4096  # bytes read of a datagram; a query is far shorter
RECEIVE_BUFFER = 1 << 21  # bytes the kernel may hold for us while we are busy
IDLE = 10.0  # seconds a stream may say nothing
MAX_STREAMS = 1000  # open at once; more are closed at once


@dataclass(frozen=True, slots=True)
class Listen:
    host: str  # "": every address of this machine, of both families
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen(option: str) -> Listen:
    """From "10.96.0.10:53", "[fd00:96::a]:53" or ":53"."""
    host, colon, port = option.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        if host or not colon:
            socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        number = int(port)
        if not 0 <= number < 65536:
            raise ValueError(port)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{option}: not an address and port", hint="write it as :53, 10.96.0.10:53 or [fd00:96::a]:53"
        ) from error
    return Listen(host, number)


class Server:
    """Bound when made, so that port 0 is known before anybody is served; `run` serves until it is cancelled."""

    def __init__(self, responder: Responder, tally: Tally, where: Listen) -> None:
        self._responder = responder
        self._tally = tally
        self._stream, self._datagrams = _bind(where)
        self._streams: set[asyncio.StreamWriter] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self.port: int = self._datagrams.getsockname()[1]

    def __repr__(self) -> str:
        return f"Server(port {self.port}, {len(self._streams)} streams)"

    async def run(self) -> Never:
        loop = asyncio.get_running_loop()
        streams: asyncio.Server | None = None
        try:
            streams = await asyncio.start_server(self._serve_stream, sock=self._stream, backlog=512)
            async with asyncio.TaskGroup() as self._tasks:
                loop.add_reader(self._datagrams, self._drain)
                await loop.create_future()
        finally:
            loop.remove_reader(self._datagrams)
            self._datagrams.close()
            if streams is not None:
                streams.close()
            self._stream.close()
            for writer in tuple(self._streams):
                writer.close()
        raise AssertionError("served until cancelled")

    def _drain(self) -> None:
        for _ in range(BATCH):
            try:
                packet, peer = self._datagrams.recvfrom(LARGEST_QUERY)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                log.warning("dns.server.receive-failed error=%r", str(error))
                return
            self._tally.udp += 1
            reply = self._responder.respond(packet)
            if isinstance(reply, Pending):
                assert self._tasks is not None
                self._tasks.create_task(self._finish(reply, peer))
            elif reply is not None:
                self._send(reply, peer)

    async def _finish(self, pending: Pending, peer: object) -> None:
        self._send(await self._responder.finish(pending), peer)

    def _send(self, reply: bytes, peer: object) -> None:
        self._tally.replied(reply)
        # The client has gone, or the kernel's buffer is full: it will ask again.
        with contextlib.suppress(OSError):
            self._datagrams.sendto(reply, peer)  # type: ignore[call-overload]  # as recvfrom gave it

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._streams) >= MAX_STREAMS:
            writer.close()
            return
        self._streams.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # idle for too long, or gone
        finally:
            self._streams.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False: what comes is no DNS, and the stream is better closed."""
        async with asyncio.timeout(IDLE):
            packet = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        self._tally.tcp += 1
        reply = self._responder.respond(packet, STREAM_SIZE)
        if isinstance(reply, Pending):
            reply = await self._responder.finish(reply)
        if reply is None:
            return False
        self._tally.replied(reply)
        writer.write(len(reply).to_bytes(2, "big") + reply)
        async with asyncio.timeout(IDLE):
            await writer.drain()
        return True


def stream_socket(where: Listen) -> socket.socket:
    """Listens. Raises Unavailable."""
    made = _socket(where, socket.SOCK_STREAM)
    try:
        # Not of datagrams: with it, a second server could bind their port too and take some of the queries.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((where.host, where.port))
        made.listen(512)
    except OSError as error:
        made.close()
        raise _refused(where, error) from error
    return made


def _bind(where: Listen) -> tuple[socket.socket, socket.socket]:
    """A listening stream socket and a datagram socket of the same port. Raises Unavailable."""
    stream = stream_socket(where)
    datagrams = _socket(where, socket.SOCK_DGRAM)
    try:
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        datagrams.bind((where.host, stream.getsockname()[1]))
    except OSError as error:
        stream.close()
        datagrams.close()
        raise _refused(where, error) from error
    return stream, datagrams


def _socket(where: Listen, kind: socket.SocketKind) -> socket.socket:
    both = not where.host and socket.has_dualstack_ipv6()
    made = socket.socket(socket.AF_INET6 if both or ":" in where.host else socket.AF_INET, kind)
    made.setblocking(False)
    if both:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _refused(where: Listen, error: OSError) -> Unavailable:
    hint = "ports below 1024 need root: try --listen 127.0.0.1:5353" if isinstance(error, PermissionError) else ""
    return Unavailable(f"{where}: cannot be listened on: {error.strerror}", hint)
