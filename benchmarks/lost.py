"""Connections lost while backends change without pause, in nftables mode.

A client connects to one Service on and on, through a node, to ten backends; meanwhile the Service's backends are
replaced, and become fewer and more, as fast as the kernel takes it. `python benchmarks/lost.py 100000` for as many
changes. A connection is lost if it is refused, or if its SYN is lost: then it takes a second, and the kernel counts a
SYN sent again. (It also counts one that met the rest of an earlier connection from its port, and went again at once.)
"""

import asyncio
import contextlib
import os
import random
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from clusterip.dataplane.nftables import compile_entry, delta
from clusterip.kernel import netns
from clusterip.services.table import Backend
from clusterip.services.tracker import Change
from entries import entry
from planes import NFTables
from pods import BACKEND, pods
from worker import Worker

CHANGES = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
OTHERS = 100  # Services beside the one that is asked
PORTS = range(8001, 8011)
RESENT = 1.0  # seconds until a SYN that got no answer is sent again
_LINGER = struct.pack("ii", 1, 0)


def serve(pipe: Connection, namespace: str) -> None:
    netns.enter(namespace)
    chosen = selectors.DefaultSelector()
    chosen.register(pipe, selectors.EVENT_READ)
    for port in PORTS:
        listener = socket.create_server((BACKEND, port), backlog=4096)
        listener.setblocking(False)
        chosen.register(listener, selectors.EVENT_READ)
    pipe.send("listening")
    while True:
        for key, _ in chosen.select():
            if not isinstance(key.fileobj, socket.socket):
                return
            with contextlib.suppress(OSError):
                key.fileobj.accept()[0].close()


def call(pipe: Connection, namespace: str, to: tuple[str, int]) -> None:
    """Until it is told to stop."""
    netns.enter(namespace)
    made, longest, lost, before = 0, 0.0, Counter[str](), sent_again()
    while not pipe.poll():
        with socket.socket() as s:
            s.settimeout(5)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            start = time.perf_counter()
            try:
                s.connect(to)
                made += 1
            except OSError as error:
                lost[str(error)] += 1
            longest = max(longest, time.perf_counter() - start)
    pipe.send((made, dict(lost), sent_again() - before, longest))


def sent_again() -> int:
    """SYNs, in this process's network namespace."""
    names, values = (line.split() for line in Path("/proc/self/net/netstat").read_text().splitlines()[:2])
    return int(values[names.index("TCPSynRetrans")])


def change_on_and_on(plane: NFTables) -> float:
    """Seconds."""
    drawn = random.Random(1)
    web, now = entry(0), plane.book.pieces[entry(0).key]
    start = time.perf_counter()
    for _ in range(CHANGES):
        ports = sorted(drawn.sample(PORTS, drawn.randint(1, len(PORTS))))
        after = compile_entry(replace(web, cluster=tuple(Backend(BACKEND, port) for port in ports)), plane.config)
        changes = [Change(now, after)]
        shift = plane.book.shift(changes)
        plane.rules.apply_now(delta.delta(shift))
        plane.book.write(changes, shift)
        now = after
    return time.perf_counter() - start


async def main() -> None:
    async with pods(f"clusterip-bench-lost-{os.getpid()}") as made:
        plane = NFTables(made.node)
        server = Worker.start(serve, made.backend)
        server.hear(10)
        try:
            real = [Backend(BACKEND, port) for port in PORTS]
            await plane.load([entry(i, () if i else real) for i in range(1 + OTHERS)])
            caller = Worker.start(call, made.client, (entry(0).cluster_ip, 80))
            seconds = change_on_and_on(plane)
            connections, lost, again, longest = caller.ask("stop")
            caller.stop()
        finally:
            server.stop()
            plane.close()
    print(f"{CHANGES} changes of one Service's backends in {seconds:.1f} s, {connections} connections meanwhile:")
    print(f"  lost {sum(lost.values())} {lost or ''}  SYNs sent again {again}  slowest {longest * 1000:.0f} ms")
    sys.exit(bool(lost or (again and longest >= RESENT)))


asyncio.run(main())
