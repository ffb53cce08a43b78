"""Running things until the first of them ends."""

import asyncio
from collections.abc import Coroutine


async def race(*contenders: Coroutine[None, None, None]) -> None:
    """Until one ends; the others are then cancelled. What one raises is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(contender) for contender in contenders]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
