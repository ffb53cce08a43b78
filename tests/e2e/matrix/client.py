"""The program of a client: `client.py FILE`. Python's own library alone, no import of ours.

FILE holds {"port": first local port of datagrams, "again": how often a try that heard nothing and should have is made
again, "probes": [...]}; a probe is [address, port, "TCP" or "UDP", times, patience in seconds, group, connected]. The
tries of a group are made one after the other, others side by side; those with little patience last, when nobody else is
in their way. Prints, a probe each, how often which answer came: a backend's line, "refused", "silent", "unreachable",
or an error's name.
"""

import asyncio
import collections
import errno
import itertools
import json
import socket
import sys
from typing import Any

Probe = tuple[str, int, str, int, float, str, bool]
Try = tuple[int, Probe, int]  # index of the probe, the probe, which of its tries

AT_ONCE = 48  # tries
SHORT = 2.0  # seconds: less patience than this expects silence
NAMES = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}


async def tcp(link: socket.socket, to: tuple[str, int]) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(link, to)
    said = b""
    while piece := await loop.sock_recv(link, 200):
        said += piece
    return said


async def udp(link: socket.socket, to: tuple[str, int], connected: bool) -> bytes:
    loop = asyncio.get_running_loop()
    if connected:
        await loop.sock_connect(link, to)
        await loop.sock_sendall(link, b"?")
        return await loop.sock_recv(link, 200)
    await loop.sock_sendto(link, b"?", to)
    said, peer = await loop.sock_recvfrom(link, 200)
    return said if peer[:2] == to else f"answered by {peer[0]}:{peer[1]}".encode()


def bind_next(link: socket.socket, ports: "itertools.count[int]") -> None:
    """No port twice: the kernel still remembers whom the last one spoke to."""
    for port in ports:
        try:
            link.bind(("", port))
        except OSError:
            continue
        return


async def attempt(probe: Probe, number: int, ports: "itertools.count[int]") -> str:
    address, port, protocol, _, patience, _, connected = probe
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM) as link:
        link.setblocking(False)
        try:
            async with asyncio.timeout(patience):
                if protocol == "TCP":
                    return (await tcp(link, (address, port))).decode().strip()
                bind_next(link, ports)
                try:
                    return (await udp(link, (address, port), connected or number % 2 == 1)).decode().strip()
                except PermissionError:
                    # Our own kernel stopped the datagram on its way out. Whether it was refused is heard afterwards.
                    return (await asyncio.get_running_loop().sock_recv(link, 200)).decode().strip()
        except TimeoutError:
            return "silent"
        except OSError as error:
            return NAMES.get(error.errno or 0) or errno.errorcode.get(error.errno or 0, str(error))


async def main(given: dict[str, Any]) -> None:
    ports, floor = itertools.count(given["port"]), asyncio.Semaphore(AT_ONCE)
    found: list[collections.Counter[str]] = [collections.Counter() for _ in given["probes"]]

    async def one(index: int, probe: Probe, number: int) -> None:
        async with floor:
            said = await attempt(probe, number, ports)
            for _ in range(given["again"] if probe[4] >= SHORT else 0):
                said = await attempt(probe, number, ports) if said == "silent" else said
            found[index][said] += 1

    async def row(tries: list[Try]) -> None:
        for each in tries:
            await one(*each)

    waits: dict[bool, list[list[Try]]] = {True: [], False: []}  # by whether silence is expected
    groups: dict[str, list[Try]] = collections.defaultdict(list)
    for index, probe in enumerate(given["probes"]):
        tries = [(index, probe, number) for number in range(probe[3])]
        if probe[5]:
            groups[probe[5]] += tries
        else:
            waits[probe[4] < SHORT] += [[each] for each in tries]
    waits[False] += groups.values()
    for expected_silent in (False, True):
        await asyncio.gather(*(row(tries) for tries in waits[expected_silent]))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        asyncio.run(main(json.load(file)))
