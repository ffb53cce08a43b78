"""What connect() costs through each dataplane: time and processor time, with 1, 1,000 and 10,000 Services.

A pod connects through its node to another pod, which accepts after every hundred, so that no waking of a process is in
the time. Every mode and size has a node of its own; all are asked in turn, so they meet the same noise. Each is
compared with `direct`, which asks the pod by its own address through a node without rules. Where it is `tracked`, the
node has connection tracking and NAT hooks without a rule: what any rules for packets cost at least. `pod` asks the pod
by its own address where all the rules are: what they cost packets that are for no Service.

Processor time is that of the client and of the server process, Python's own part included. The kernel's work on the
packets of a connection runs within their calls and counts as theirs; what it leaves to ksoftirqd does not count.

    python benchmarks/connect.py --sizes 1 1000 --modes nftables ebpf --seconds 20
"""

import argparse
import asyncio
import contextlib
import gc
import os
import random
import socket
import statistics
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from clusterip.dataplane.iptables.names import service_digest
from clusterip.kernel import cgroup, netns, sysctl
from clusterip.services.table import Backend
from entries import entry
from kubeproxy import nft
from planes import EVERY, Plane, available
from pods import BACKEND, pods
from worker import Worker

SIZES = (1, 1000, 10000)
AT_ONCE = 100  # connections
PORTS = range(8001, 8011)
WARM_UP = 50  # connections of each row before the first that counts
DIRECT, TRACKED = "direct", "direct, tracked"
HOOKS = """
add table ip tracked
add chain ip tracked prerouting { type nat hook prerouting priority -100; }
add chain ip tracked postrouting { type nat hook postrouting priority 100; }
add chain ip tracked forward { type filter hook forward priority 0; }
add rule ip tracked forward ct state invalid drop
"""
TAG = f"clusterip-bench-{os.getpid()}"
_LINGER = struct.pack("ii", 1, 0)  # close() resets: no connection outlives its measurement


@dataclass(frozen=True, slots=True)
class Sample:
    """Of `AT_ONCE` connections, in seconds."""

    each: list[float]  # connect() alone
    wall: float  # of all of them, with opening, accepting and closing the sockets
    cpu: float  # of client and server


def call(pipe: Connection, namespace: str, group: Path | None) -> None:
    """The client: connects as often as it is told, and answers with the times."""
    netns.enter(namespace)
    if group:
        cgroup.add(group, os.getpid())
    clock = time.perf_counter
    while (asked := pipe.recv()) is not None:
        to, count = asked
        each = []
        gc.disable()
        cpu, start = time.process_time(), clock()
        for _ in range(count):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
                s.settimeout(None)
                before = clock()
                s.connect(to)
                each.append(clock() - before)
        wall, cpu = clock() - start, time.process_time() - cpu
        gc.enable()
        pipe.send((each, wall, cpu))


def serve(pipe: Connection, namespace: str) -> None:
    """The backends: told so, they accept what has connected meanwhile, and answer with the time it took."""
    netns.enter(namespace)
    listeners = [socket.create_server((BACKEND, port), backlog=4096) for port in PORTS]
    for listener in listeners:
        listener.setblocking(False)
    while pipe.recv() is not None:
        accepted, cpu = 0, time.process_time()
        for listener in listeners:
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    accepted += 1
        pipe.send((accepted, time.process_time() - cpu))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the answer: where to connect, and who does it."""

    mode: str
    what: str
    to: tuple[str, int]
    client: Worker
    server: Worker
    samples: list[Sample] = field(default_factory=list)

    def take(self, count: int = AT_ONCE) -> Sample:
        each, wall, cpu = self.client.ask((self.to, count))
        accepted, accepting = self.server.ask("accept")
        if accepted != count:
            raise SystemExit(f"{self.mode}, {self.what}: {count} connections, of which {accepted} arrived")
        return Sample(each, wall + accepting, cpu + accepting)


@asynccontextmanager
async def rows(mode: str, size: int, number: int) -> AsyncIterator[list[Row]]:
    """A node in `mode` with `size` Services, and what to ask of it."""
    async with pods(f"{TAG}-{number}") as made, AsyncExitStack() as stack:
        # Connections that are over leave the table of connections before it is full.
        sysctl.ensure("net.netfilter.nf_conntrack_tcp_timeout_close", "1", made.node)
        plane = EVERY[mode](made.node) if mode in EVERY else None
        if plane:
            stack.callback(plane.close)
        elif mode == TRACKED:
            nft(made.node, HOOKS)
        server = Worker.start(serve, made.backend)
        stack.callback(server.stop)
        server.ask("accept")
        client = Worker.start(call, made.client, plane.cgroup if plane else None)
        stack.callback(client.stop)

        def row(what: str, address: str, port: int) -> Row:
            return Row(mode, what, (address, port), client, server)

        if not plane:
            yield [row("", BACKEND, PORTS[0])]
            return
        ends = ends_of_chain(size)
        await fill(plane, mode, size, ends)
        first, last = (entry(i).cluster_ip for i in ends)
        if size == 1:
            yield [row("1 Service", first, 80)]
        else:
            named = (("first", first, 80), ("last", last, 80), ("pod", BACKEND, PORTS[0]))
            yield [row(f"{size:,} Services, {what}", *to) for what, *to in named]


def ends_of_chain(size: int) -> tuple[int, int]:
    """The first and the last Service of KUBE-SERVICES, which iptables mode writes by descending name of the target."""
    targets = {service_digest(e.name, e.protocol): i for i, e in enumerate(map(entry, range(size)))}
    return targets[max(targets)], targets[min(targets)]


async def fill(plane: Plane, mode: str, size: int, ends: tuple[int, int]) -> None:
    """The Services at the `ends` have backends that answer."""
    real = [Backend(BACKEND, port) for port in PORTS]
    started = time.perf_counter()
    await plane.load([entry(i, real if i in ends else ()) for i in range(size)])
    print(f"  {mode}: {size:,} Services in {time.perf_counter() - started:.1f} s", flush=True)


def show(asked: Sequence[Row]) -> None:
    direct = asked[0]
    base, spent = median(direct), processor(direct)
    print(f"  {'':42}{'connect() p50':>16}{'p99':>10}{'to direct':>11}{'connections/s':>15}{'CPU each':>11}{'more':>9}")
    for row in asked:
        each = sorted(t for s in row.samples for t in s.each)
        rate = statistics.median(len(s.each) / s.wall for s in row.samples)
        print(
            f"  {row.mode:18}{row.what:24}{median(row) * 1e6:13.1f} us{each[int(len(each) * 0.99)] * 1e6:7.0f} us"
            f"{median(row) / base:11.2f}{rate:15.0f}"
            f"{processor(row) * 1e6:8.1f} us{(processor(row) - spent) * 1e6:6.1f} us"
        )


def median(row: Row) -> float:
    return statistics.median(t for s in row.samples for t in s.each)


def processor(row: Row) -> float:
    """Seconds for one connection: the median sample's, so that what else the machine does counts little."""
    return statistics.median(s.cpu / len(s.each) for s in row.samples)


async def main() -> None:
    parser = argparse.ArgumentParser(description="what connect() costs through each dataplane")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--modes", nargs="+", choices=EVERY, default=list(EVERY))
    parser.add_argument("--seconds", type=float, default=60.0, help="of measuring, after the rules are loaded")
    given = parser.parse_args()
    print("connect() from a pod to another node's pod, by a Service of ten backends, and by the pod's own address:")
    places = [(DIRECT, 0), (TRACKED, 0)] + [
        (mode, size) for mode in await available(given.modes) for size in given.sizes
    ]
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(rows(*place, i)) for i, place in enumerate(places)]
        asked = [row for some in made for row in some]
        for row in asked:
            row.take(WARM_UP)
        rounds, ends = 0, time.monotonic() + given.seconds
        while rounds < 3 or time.monotonic() < ends:
            rounds += 1
            for row in random.sample(asked, len(asked)):
                row.samples.append(row.take())
        print(f"  {rounds} rounds of {AT_ONCE} connections each, in random order:")
        show(asked)


asyncio.run(main())
