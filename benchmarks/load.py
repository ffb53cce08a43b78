"""How long a full load of iptables rules takes, from service table to kernel, in both variants.

Beside it the same rules in one COMMIT block, as kube-proxy writes them. With the nft variant that takes more than
quadratic time (2,000 Services: 38 s of CPU were measured), so it is run up to 1,000 Services only.
"""

import asyncio
import os
import re
import resource
import time
from collections.abc import Callable

from clusterip.dataplane.iptables import Config, FromCIDR, Installed, Piece, Variant, compile_entry
from clusterip.dataplane.iptables.delta import load
from clusterip.kernel import netns
from clusterip.kernel.iptables import detect, restore
from entries import NODE_IP, PODS, entry

SIZES = (1000, 5000, 10000)
ONE_BLOCK = 1000  # and no more
CONFIG = Config(node_ip=NODE_IP, detector=FromCIDR(PODS))


def one_block(text: str) -> str:
    """The nat table's blocks joined into one: declarations first, then rules, as they came."""
    blocks = re.findall(r"^\*nat\n(.*?)COMMIT\n", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines(keepends=True)]
    ordered = sorted(lines, key=lambda line: not line.startswith(":"))
    rest = re.sub(r"^\*nat\n.*?COMMIT\n", "", text, flags=re.M | re.S)
    return rest + "*nat\n" + "".join(ordered) + "COMMIT\n"


async def loaded(variant: Variant, text: str) -> tuple[float, float]:
    """CPU and wall seconds of one iptables-restore into an empty namespace."""
    name = f"clusterip-bench-load-{os.getpid()}"
    netns.create(name)
    try:
        programs = await detect("IPv4", variant.value, name)
        cpu, wall = children(), time.perf_counter()
        await restore(programs, text)
        return children() - cpu, time.perf_counter() - wall
    finally:
        netns.delete(name)


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(work: Callable[[], list[Piece]]) -> tuple[list[Piece], float]:
    start = time.process_time()
    made = work()
    return made, time.process_time() - start


async def main() -> None:
    print("full load, N Services x 10 backends; seconds of CPU (wall):")
    for size in SIZES:
        entries = [entry(i) for i in range(size)]
        pieces, compiling = timed(lambda entries=entries: [compile_entry(e, CONFIG) for e in entries])
        row = [f"  {size:6} Services   compile {compiling:5.2f}"]
        for variant in Variant:
            text = load(pieces, Installed(), CONFIG, variant).text
            cpu, wall = await loaded(variant, text)
            row.append(f"{variant.value} {cpu:6.2f} ({wall:6.2f})")
            if variant is Variant.NFT and size <= ONE_BLOCK:
                slow, wall = await loaded(variant, one_block(text))
                row.append(f"nft in one block {slow:6.2f} ({wall:6.2f}), {slow / cpu:.1f} times as much")
        print("   ".join(row), flush=True)


asyncio.run(main())
