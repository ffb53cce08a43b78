"""Memory of each process with N Services x 10 backends, at rest. Sizes are stands of their own, one after the other."""

import asyncio

from stand import api, fill, quiet, stand

SIZES = (10, 1000, 5000, 10000)


async def main() -> None:
    print("resident memory at rest, MiB, N Services x 10 backends:")
    for size in SIZES:
        async with stand(("controllers", "proxy")) as made, api(made) as client:
            await fill(client, range(size))
            await quiet(made, 5.0)
            row = [f"{name} {made.memory(name):6.0f}" for name in made.processes]
            print(f"  {size:6} Services   " + "   ".join(row), flush=True)


asyncio.run(main())
