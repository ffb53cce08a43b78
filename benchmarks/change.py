"""How long from a write to the API until the kernel's rules have changed, with few and with many Services.

One backend of one Service is replaced; the clock runs from the PATCH until the kernel says that its rules are of a
new generation. Stands of all sizes are up at once and are asked in turn, so they meet the same noise. In iptables mode;
`python benchmarks/change.py nftables` in another.
"""

import asyncio
import contextlib
import sys
import time

from clusterip.client.api import Api
from clusterip.model.resources import ENDPOINT_SLICES
from stand import Stand, api, fill, quiet, slice_of, stand, summary

SIZES = (10, 1000, 5000)
TURNS = 40


async def change(client: Api, made: Stand, i: int, turn: int) -> float:
    """Milliseconds."""
    before = made.generation()
    patch = {"endpoints": slice_of(i, turn)["endpoints"]}
    start = time.perf_counter()
    await client.patch(ENDPOINT_SLICES, "default", f"svc-{i:05}-x", patch)
    while made.generation() == before:
        await asyncio.sleep(0.0005)
        if time.perf_counter() - start > 30:
            raise SystemExit("the change has not reached the kernel within 30 s")
    return (time.perf_counter() - start) * 1000


async def main() -> None:
    taken: dict[int, list[float]] = {size: [] for size in SIZES}
    async with contextlib.AsyncExitStack() as stack:
        mode = sys.argv[1] if len(sys.argv) > 1 else "iptables"
        stands = {size: await stack.enter_async_context(stand(mode=mode)) for size in SIZES}
        clients = {size: await stack.enter_async_context(api(made)) for size, made in stands.items()}
        for size, made in stands.items():
            await fill(clients[size], range(size))
            await quiet(made, 5.0)
        for turn in range(1, TURNS + 1):
            for size, made in stands.items():
                taken[size].append(await change(clients[size], made, size // 2, turn))
                await quiet(made, 0.1)
    print(f"{mode} mode, API write to kernel, one backend of one Service replaced, 10 backends each:")
    for size, values in taken.items():
        print(f"  {size:6} Services   {summary(values)}")
    first, last = (sorted(taken[size])[TURNS // 2] for size in (SIZES[0], SIZES[-1]))
    print(f"  ratio of the medians, {SIZES[-1]} to {SIZES[0]}: {last / first:.1f}")


asyncio.run(main())
