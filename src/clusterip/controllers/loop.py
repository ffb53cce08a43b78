"""The one loop that all controllers share.

Changes from the Mirror become keys of controllers; a key is planned from the view, and its writes are done. One key is
never worked on twice at once; keys wait for each other in no other way. Nothing waits for time, except what failed
(backing off, key by key) and what asked for it.

A key is not planned from a view older than its own last writes: it would see too few pods and make more.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Never, Protocol

from clusterip.client.api import Api
from clusterip.client.mirror import Backoff, Mirror, Watched
from clusterip.client.view import Change, Ref
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.writer import Own, Writer, shows
from clusterip.controllers.writes import Key, Plan
from clusterip.errors import ClusterIPError
from clusterip.model.status import ApiError

log = logging.getLogger(__name__)

WORKERS = 16
WAIT_FOR_OWN = 10.0  # seconds after which a key is planned again even if the view never showed its writes


class Controller(Protocol):
    @property
    def name(self) -> str: ...

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        """Which of its keys a change concerns."""
        ...

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        """What to write so that the world is as the key's object wants it; nothing when it is. `now`: seconds since
        the epoch."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One round of one key, for metrics. `outcome`: success, stale, error."""

    controller: str
    key: Key
    outcome: str
    plan: Plan
    seconds: float


Task = tuple[Controller, Key]


class Loop:
    """Run it beside the Mirror that it reads."""

    def __init__(
        self,
        api: Api,
        mirror: Mirror,
        watched: Sequence[Watched],
        controllers: Sequence[Controller],
        report: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._mirror = mirror
        self._writer = Writer(api, {w.resource: w.as_type for w in watched})
        self._controllers = tuple(controllers)
        self._report = report
        self._lookup = Lookup(mirror.view)
        self._queue: asyncio.Queue[Task] = asyncio.Queue()
        self._queued: set[Task] = set()
        self._working: set[Task] = set()
        self._blocked: dict[Task, tuple[Own, ...]] = {}  # what each waits to see
        self._again: set[Task] = set()  # asked for while working or blocked
        self._backoff: dict[Task, Backoff] = {}
        self._timers: dict[Task, asyncio.TimerHandle] = {}  # to be planned again
        self._patience: dict[Task, asyncio.TimerHandle] = {}  # to be blocked no longer

    def __repr__(self) -> str:
        return f"Loop(queued={len(self._queued)} working={len(self._working)} blocked={len(self._blocked)})"

    async def run(self) -> Never:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(), name="controllers read")
            for number in range(WORKERS):
                tasks.create_task(self._serve(), name=f"controllers worker {number}")
        raise AssertionError("the workers never end")

    def add(self, task: Task) -> None:
        """To be planned as soon as it may."""
        if task in self._working or task in self._blocked:
            self._again.add(task)
        elif task not in self._queued:
            self._queued.add(task)
            self._queue.put_nowait(task)

    async def _read(self) -> Never:
        while True:
            changes = await self._mirror.changes()
            # All of them first: a controller that asks for others must see the whole of one moment.
            for ref, change in changes.items():
                self._lookup.note(ref, change)
            for ref, change in changes.items():
                for controller in self._controllers:
                    for key in controller.keys(ref, change, self._lookup):
                        self.add((controller, key))
            for task, own in list(self._blocked.items()):
                if all(shows(self._mirror, write) for write in own):
                    self._unblock(task)

    async def _serve(self) -> Never:
        while True:
            task = await self._queue.get()
            self._queued.discard(task)
            self._working.add(task)
            try:
                own = await self._do(task)
            finally:
                self._working.discard(task)
            if not all(shows(self._mirror, write) for write in own):
                self._block(task, own)
            elif task in self._again:
                self._again.discard(task)
                self.add(task)

    def _block(self, task: Task, own: tuple[Own, ...]) -> None:
        self._blocked[task] = own
        self._patience[task] = asyncio.get_running_loop().call_later(WAIT_FOR_OWN, self._unblock, task)

    def _unblock(self, task: Task) -> None:
        del self._blocked[task]
        self._patience.pop(task).cancel()
        if task in self._again:
            self._again.discard(task)
            self.add(task)

    async def _do(self, task: Task) -> tuple[Own, ...]:
        """Plans and writes; what happens on the way is logged and tried again. Returns what was written."""
        controller, key = task
        started, plan, own, outcome = time.monotonic(), Plan(), list[Own](), "success"
        try:
            plan = controller.plan(self._lookup, key, time.time())
            for write in plan.writes:
                own.extend(await self._writer.do(write))
            self._backoff.pop(task, None)
            if plan.again_after is not None:
                self._later(task, plan.again_after)
        except ApiError as error:
            outcome = "stale" if error.code == 409 else "error"
            self._failed(task, error.message)
        except ClusterIPError as error:
            outcome = "error"
            self._failed(task, error.message)
        except Exception:
            outcome = "error"
            log.exception("controllers.%s.broken key=%s/%s", controller.name, *key)
            self._failed(task, "see above")
        self._report(Report(controller.name, key, outcome, plan, time.monotonic() - started))
        return tuple(own)

    def _failed(self, task: Task, why: str) -> None:
        delay = self._backoff.setdefault(task, Backoff(first=0.01, most=60.0)).delay()
        controller, key = task
        log.info("controllers.%s.failed key=%s/%s again_in=%.3f error=%r", controller.name, *key, delay, why)
        self._later(task, delay)

    def _later(self, task: Task, delay: float) -> None:
        pending = self._timers.pop(task, None)
        if pending is not None:
            pending.cancel()
        self._timers[task] = asyncio.get_running_loop().call_later(delay, self._due, task)

    def _due(self, task: Task) -> None:
        del self._timers[task]
        self.add(task)
