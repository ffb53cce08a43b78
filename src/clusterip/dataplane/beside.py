"""What a change of the service table comes to, worked out without holding up who asks meanwhile."""

import asyncio
from collections.abc import Callable, Sized
from typing import TypeVar

T = TypeVar("T")

_FEW = 100  # changes, worked out in some 10 ms


async def beside(work: Callable[[], T], changes: Sized) -> T:
    """`work` over many changes runs in a thread, over few where we are: that is faster than to hand it over. Nobody may
    change meanwhile what it reads."""
    return await asyncio.to_thread(work) if len(changes) > _FEW else work()
