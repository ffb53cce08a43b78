"""To wait for what has no event: a kernel, a fake server, a process."""

import asyncio
import time
from collections.abc import Callable


async def until(holds: Callable[[], object], within: float = 20.0) -> float:
    """Seconds it took. Raises TimeoutError."""
    started = time.monotonic()
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return time.monotonic() - started
