"""How long from a write to the API until the kernel has changed, with few and with many Services, in each mode.

One backend of one Service is replaced; the clock runs from the PATCH until the kernel says that its rules, or what it
tells sockets, are others. Stands of all sizes are up at once and are asked in turn, so they meet the same noise. Beside
it the memory of the processes once all Services are in the kernel. `python benchmarks/change.py nftables` for one mode.
"""

import asyncio
import contextlib
import statistics
import sys
import time

from clusterip.client.api import Api
from clusterip.model.objects import Service
from clusterip.model.resources import ENDPOINT_SLICES, SERVICES
from stand import Stand, api, fill, quiet, slice_of, stand, summary

MODES = ("nftables", "ebpf", "iptables")
SIZES = (10, 1000, 5000)
TURNS = 40


async def change(client: Api, made: Stand, i: int, turn: int, address: str) -> float:
    """Milliseconds."""
    before = made.seen(address)
    patch = {"endpoints": slice_of(i, turn)["endpoints"]}
    start = time.perf_counter()
    await client.patch(ENDPOINT_SLICES, "default", f"svc-{i:05}-x", patch)
    while made.seen(address) == before:
        await asyncio.sleep(0.0005)
        if time.perf_counter() - start > 30:
            raise SystemExit("the change has not reached the kernel within 30 s")
    return (time.perf_counter() - start) * 1000


async def measure(mode: str) -> None:
    taken: dict[int, list[float]] = {size: [] for size in SIZES}
    async with contextlib.AsyncExitStack() as stack:
        stands = {size: await stack.enter_async_context(stand(("controllers", "proxy"), mode)) for size in SIZES}
        clients = {size: await stack.enter_async_context(api(made)) for size, made in stands.items()}
        addresses, memory = {}, {}
        for size, made in stands.items():
            await fill(clients[size], range(size))
            await quiet(made, 5.0)
            memory[size] = ", ".join(f"{name} {made.memory(name):.0f}" for name in made.processes)
            service = await clients[size].get(SERVICES, "default", f"svc-{size // 2:05}", Service)
            addresses[size] = service.spec.cluster_ip
        for turn in range(1, TURNS + 1):
            for size, made in stands.items():
                taken[size].append(await change(clients[size], made, size // 2, turn, addresses[size]))
                await quiet(made, 0.1)
    print(f"{mode} mode, API write to kernel, one backend of one Service replaced, 10 backends each:")
    for size, values in taken.items():
        print(f"  {size:6} Services   {summary(values)}   MiB: {memory[size]}")
    least, most = (statistics.median(taken[size]) for size in (SIZES[0], SIZES[-1]))
    print(f"  ratio of the medians, {SIZES[-1]} to {SIZES[0]}: {most / least:.1f}", flush=True)


async def main() -> None:
    for mode in sys.argv[1:] or MODES:
        await measure(mode)


asyncio.run(main())
