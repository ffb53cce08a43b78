"""What a dataplane costs the proxy: to write all Services at once, to change one, and in memory; each mode and size.

From the service table to the kernel: compiling, working out the delta, and the kernel's own work. kube-proxy's
nftables layout is beside ours, from finished text, so without its own computing. Each mode and size is a process with
a node of its own; all are asked in turn.

    python benchmarks/modes.py --sizes 10 1000 --modes nftables ebpf --seconds 20
"""

import argparse
import asyncio
import contextlib
import gc
import os
import random
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from clusterip.services.table import Entry
from entries import BACKENDS, entry, with_other_backend
from planes import EVERY, Plane, available
from pods import pods
from worker import Worker

SIZES = (10, 1000, 10000)
AT_ONCE = 0.05  # seconds of changes before another has its turn
LONGEST = 900.0  # seconds for one load
TAG = f"clusterip-bench-{os.getpid()}"
CHARGED = Path("/sys/fs/cgroup/memory")  # version 1, which says how much of the kernel's memory a group has caused
REPLACED, RESIZED, ADDED, REMOVED = "one backend replaced", "one less, one more", "a Service added", "removed"


@dataclass(frozen=True, slots=True)
class Load:
    cpu: float  # seconds, of the process and the programs it ran
    wall: float
    memory: float  # MiB that the process has grown by, without the entries themselves
    kernel: float  # MiB that the kernel has taken meanwhile


def drive(pipe: Connection, mode: str, node: str, size: int) -> None:
    with charged(node) as group, asyncio.Runner() as loop:
        plane = EVERY[mode](node)
        try:
            everything = [entry(i) for i in range(size)]
            pipe.send(loop.run(load(plane, everything, group)))
            changes = Changes(plane, everything[size // 2], entry(size))
            while pipe.recv() is not None:
                pipe.send(loop.run(changes.some()))
        finally:
            plane.close()


async def load(plane: Plane, everything: Sequence[Entry], group: Path | None) -> Load:
    gc.collect()
    had, held = anonymous(), kernel(group)
    cpu, start = processor(), time.perf_counter()
    await plane.load(everything)
    cpu, wall = processor() - cpu, time.perf_counter() - start
    gc.collect()
    return Load(cpu, wall, anonymous() - had, kernel(group) - held)


class Taken(NamedTuple):
    """By one change, in milliseconds."""

    wall: float
    cpu: float  # of the process and the programs it ran


class Changes:
    def __init__(self, plane: Plane, changed: Entry, extra: Entry) -> None:
        self.plane = plane
        self.now = changed
        self.extra = extra
        self.turn = 0

    async def some(self) -> dict[str, list[Taken]]:
        """By kind."""
        taken: dict[str, list[Taken]] = defaultdict(list)
        ends = time.perf_counter() + AT_ONCE
        while not taken or time.perf_counter() < ends:
            self.turn += 1
            other = with_other_backend(self.now, self.turn % BACKENDS)
            fewer = replace(other, cluster=other.cluster[:-1])
            for what, before, after in (
                (REPLACED, self.now, other),
                (RESIZED, other, fewer),
                (RESIZED, fewer, other),
                (ADDED, None, self.extra),
                (REMOVED, self.extra, None),
            ):
                cpu, start = processor(), time.perf_counter()
                await self.plane.change(before, after)
                taken[what].append(Taken((time.perf_counter() - start) * 1000, (processor() - cpu) * 1000))
            self.now = other
        return dict(taken)


def processor() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def anonymous() -> float:
    """MiB of this process's own memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def charged(name: str) -> Iterator[Path | None]:
    """A group that the kernel's memory is charged to, with this process in it; None where there is no such thing."""
    if not (CHARGED / "memory.kmem.usage_in_bytes").exists():
        yield None
        return
    own = Path("/proc/self/cgroup").read_text().split(":memory:/", 1)[1].split("\n", 1)[0]
    home = CHARGED / own
    group = home / name
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield group
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def kernel(group: Path | None) -> float:
    """MiB that the kernel has taken for the group; without one, for the whole machine."""
    if group:
        return int((group / "memory.kmem.usage_in_bytes").read_text()) / (1 << 20)
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[0] in ("SUnreclaim:", "VmallocUsed:", "Percpu:")) / 1024


@dataclass(frozen=True, slots=True)
class Row:
    mode: str
    size: int
    worker: Worker
    load: Load
    taken: dict[str, list[Taken]] = field(default_factory=lambda: defaultdict(list))

    def take(self) -> None:
        for what, values in self.worker.ask("some").items():
            self.taken[what] += values


@asynccontextmanager
async def row(mode: str, size: int, number: int) -> AsyncIterator[Row]:
    async with pods(f"{TAG}-{number}") as made:
        worker = Worker.start(drive, mode, made.node, size)
        try:
            yield Row(mode, size, worker, worker.hear(LONGEST))
        finally:
            worker.stop()


def show(rows: Sequence[Row]) -> None:
    kinds = (REPLACED, RESIZED, ADDED, REMOVED)
    print(f"  {'':24}{'load, CPU':>10}{'wall':>9}{'proxy':>9}{'kernel':>9}   " + "".join(f"{k:>28}" for k in kinds))
    for one in rows:
        times = "".join(f"{spread(one.taken[kind]):>28}" for kind in kinds)
        print(
            f"  {one.mode:12}{one.size:6,} x 10{one.load.cpu:9.2f} s{one.load.wall:7.2f} s"
            f"{one.load.memory:5.0f} MiB{one.load.kernel:5.0f} MiB   {times}"
        )
    least, most = (choose(one.size for one in rows) for choose in (min, max))
    for mode in dict.fromkeys(one.mode for one in rows) if least < most else ():
        few, many = (one for one in rows if one.mode == mode and one.size in (least, most))
        ratios = (processors(many.taken[kind]) / processors(few.taken[kind]) for kind in kinds)
        named = ", ".join(f"{kind} {ratio:.1f}" for kind, ratio in zip(kinds, ratios, strict=True))
        print(f"  {mode}, CPU of a change with {most:,} Services to that with {least:,}: {named}")


def processors(taken: Sequence[Taken]) -> float:
    return statistics.median(one.cpu for one in taken)


def spread(taken: Sequence[Taken]) -> str:
    walls = sorted(one.wall for one in taken)
    last = walls[int(len(walls) * 0.99)]
    return f"{processors(taken):.2f}  {statistics.median(walls):.2f} / {last:.1f} ms"


async def main() -> None:
    parser = argparse.ArgumentParser(description="what a dataplane costs the proxy")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--modes", nargs="+", choices=EVERY, default=list(EVERY))
    parser.add_argument("--seconds", type=float, default=60.0, help="of changes, after all is loaded")
    given = parser.parse_args()
    print(
        "N Services of ten backends, from the service table to the kernel; changes: CPU, p50 / p99 of the time",
        flush=True,
    )
    places = [(mode, size) for mode in await available(given.modes) for size in given.sizes]
    async with AsyncExitStack() as stack:
        rows = [await stack.enter_async_context(row(*place, i)) for i, place in enumerate(places)]
        turns, ends = 0, time.monotonic() + given.seconds
        while turns < 3 or time.monotonic() < ends:
            turns += 1
            for one in random.sample(rows, len(rows)):
                one.take()
        show(rows)


if __name__ == "__main__":
    asyncio.run(main())
