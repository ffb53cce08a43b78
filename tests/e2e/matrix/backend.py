"""The program of a backend pod: `backend.py NAME PORT... [@ADDRESS...]`. Python's own library alone, no import of ours.

To whoever connects, or sends a datagram, it says who it is and whom it sees: "red-1:8080 10.244.1.7". On HEALTH it
answers 200, or 503 after POST /fail, until POST /ok. It goes on while its pod is terminating, until it is killed.
"""

import asyncio
import signal
import socket
import sys

HEALTH = 7000


def line(name: str, port: int, peer: str) -> bytes:
    return f"{name}:{port} {peer.removeprefix('::ffff:')}\n".encode()


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, peer: tuple) -> None:  # type: ignore[type-arg]  # as asyncio has it
        self.transport.sendto(line(self.name, self.port, peer[0]), peer)  # type: ignore[attr-defined]


class Health:
    well = True

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if asked.startswith(b"POST"):
            self.well = b"/ok" in asked
        status = b"200 OK" if self.well or asked.startswith(b"POST") else b"503 Service Unavailable"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


def opened(kind: int, address: str, port: int) -> socket.socket:
    family = socket.AF_INET if "." in address else socket.AF_INET6
    made = socket.socket(family, kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != "::"))
    made.bind((address, port))
    made.setblocking(False)
    return made


async def serve(name: str, ports: list[int], addresses: list[str]) -> None:
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def listen(port: int, address: str) -> None:
        async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(line(name, port, writer.get_extra_info("peername")[0]))
            writer.close()

        coming.append(asyncio.start_server(tell, sock=opened(socket.SOCK_STREAM, address, port), backlog=1024))
        datagrams = opened(socket.SOCK_DGRAM, address, port)
        coming.append(loop.create_datagram_endpoint(lambda: Datagrams(name, port), sock=datagrams))

    coming: list = []  # type: ignore[type-arg]  # of coroutines of two kinds
    for address in addresses:
        for port in ports:
            listen(port, address)
        health = opened(socket.SOCK_STREAM, address, HEALTH)
        coming.append(asyncio.start_server(Health().answer, sock=health))
    kept = await asyncio.gather(*coming)
    await asyncio.Event().wait()
    del kept


if __name__ == "__main__":
    words = sys.argv[2:]
    at = [w[1:] for w in words if w.startswith("@")] or ["::"]
    asyncio.run(serve(sys.argv[1], [int(w) for w in words if not w.startswith("@")], at))
