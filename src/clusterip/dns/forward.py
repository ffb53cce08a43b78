"""Questions about names outside the zone, asked of other name servers.

Each goes from a socket and under a number of its own, so a forged reply has both to guess.
"""

import asyncio
import secrets
import socket
from dataclasses import dataclass

from clusterip.dns.query import HEADER, TC
from clusterip.errors import BadInput, ClusterIPError, Unavailable

TIMEOUT = 2.0  # seconds one attempt may take
ATTEMPTS = 2  # each with the next of the upstreams
MAX_IN_FLIGHT = 1000  # questions waiting for upstreams; more are refused at once


class Unanswered(ClusterIPError):
    """No upstream answered in time, or too many questions wait already."""


@dataclass(frozen=True, slots=True)
class Upstream:
    host: str
    port: int = 53

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def upstreams(option: str) -> tuple[Upstream, ...]:
    """What `--forward` means: "none", the path of a resolv.conf, or addresses with or without port, by comma."""
    if option in ("", "none"):
        return ()
    if option.startswith("/"):
        try:
            with open(option, encoding="utf-8", errors="replace") as file:
                words = [line.split() for line in file]
        except OSError as error:
            raise Unavailable(f"{option}: cannot be read: {error.strerror}", hint="try --forward none") from error
        servers = tuple(Upstream(w[1].partition("%")[0]) for w in words if len(w) > 1 and w[0] == "nameserver")
        if not servers:
            raise BadInput(f"{option}: it names no nameserver", hint="name one: --forward 192.0.2.53:53")
        return servers
    return tuple(_upstream(part.strip()) for part in option.split(","))


def _upstream(part: str) -> Upstream:
    host, _, port = part.rpartition(":") if part.count(":") == 1 or "]:" in part else (part, "", "53")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.inet_pton(family, host)
        if not 0 < int(port) < 65536:
            raise ValueError(port)
    except (OSError, ValueError) as error:
        hint = "write it as 192.0.2.53:53 or [2001:db8::53]:53, or the path of a resolv.conf, or none"
        raise BadInput(f"--forward {part}: not an address and port of a name server", hint=hint) from error
    return Upstream(host, int(port))


class _Once(asyncio.DatagramProtocol):
    """Waits for the one reply that has the question's number and the question's text."""

    def __init__(self, query: bytes, question: bytes) -> None:
        self._query = query
        self._question = question
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        transport.sendto(self._query)

    def datagram_received(self, data: bytes, addr: object) -> None:
        if _matches(self._query, self._question, data) and not self.reply.done():
            self.reply.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(exc)


def _matches(query: bytes, question: bytes, reply: bytes) -> bool:
    at = HEADER.size
    return (
        len(reply) >= at
        and reply[:2] == query[:2]
        and bool(reply[2] & 0x80)
        and reply[at : at + len(question)].lower() == question.lower()
    )


class Forwarder:
    def __init__(self, servers: tuple[Upstream, ...]) -> None:
        self.servers = servers
        self._waiting = 0

    def __repr__(self) -> str:
        return f"Forwarder({', '.join(map(str, self.servers)) or 'none'}, {self._waiting} waiting)"

    async def ask(self, packet: bytes, question: bytes) -> bytes:
        """The reply to a query `packet` whose question section begins with `question`, under the query's number.

        Raises Unanswered.
        """
        if self._waiting >= MAX_IN_FLIGHT:
            raise Unanswered(f"{self._waiting} questions wait for an answer already")
        self._waiting += 1
        try:
            return packet[:2] + (await self._try_each(secrets.token_bytes(2) + packet[2:], question))[2:]
        finally:
            self._waiting -= 1

    async def _try_each(self, query: bytes, question: bytes) -> bytes:
        last = ""
        for attempt in range(ATTEMPTS):
            server = self.servers[attempt % len(self.servers)]
            try:
                async with asyncio.timeout(TIMEOUT):
                    reply = await _over_udp(server, query, question)
                    if reply[2] & TC >> 8:
                        reply = await _over_tcp(server, query, question)
                    return reply
            except (OSError, asyncio.IncompleteReadError) as error:
                last = f"{server}: {error or 'no answer in time'}"
        raise Unanswered(last)


async def _over_udp(server: Upstream, query: bytes, question: bytes) -> bytes:
    transport, waiting = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Once(query, question), remote_addr=(server.host, server.port)
    )
    try:
        return await waiting.reply
    finally:
        transport.close()


async def _over_tcp(server: Upstream, query: bytes, question: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(len(query).to_bytes(2, "big") + query)
        reply = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
    finally:
        writer.close()
    if not _matches(query, question, reply):
        raise ConnectionError("the reply is not to our question")
    return reply
