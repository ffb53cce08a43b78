"""How a process of ours runs and ends."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine

from clusterip.errors import ClusterIPError


def run_until_told(main: Coroutine[object, object, object]) -> None:
    """Runs until SIGTERM or SIGINT. Of several errors that ended it the first that a person can use is raised."""

    async def with_signals() -> None:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(with_signals())
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup) -> BaseException:
    told, _ = group.split(ClusterIPError)
    found: BaseException = told or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
