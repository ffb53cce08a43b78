"""The Mirror: follows kinds of objects by list and watch, and says which of them changed.

One task a kind: list, then watch from the list's revision; when the watch ends, watch on from the newest revision
heard; when that is too old (410), list again and report what differs, no more. No event is lost and none is invented;
several changes of one object between two looks are told as one.
"""

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Never

from clusterip.client.api import Api, EventKind
from clusterip.client.view import Change, Ref, View, metadata, ref
from clusterip.errors import ClusterIPError
from clusterip.model.objects import Value
from clusterip.model.resources import Resource
from clusterip.model.status import ApiError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    resource: Resource
    as_type: type[Value]
    label_selector: str = ""
    field_selector: str = ""
    namespace: str = ""  # "": all


class Backoff:
    """Seconds to wait before the next try: doubling, with jitter so that a crowd does not come back as one."""

    def __init__(self, first: float = 0.05, most: float = 10.0) -> None:
        self._first, self._most, self._next = first, most, first

    def reset(self) -> None:
        self._next = self._first

    def delay(self) -> float:
        ceiling, self._next = self._next, min(self._next * 2, self._most)
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 (it spreads load, it guards nothing)


class Mirror:
    """`run` must be running in a task of its own; one reader calls `changes`."""

    def __init__(self, api: Api, watched: Sequence[Watched]) -> None:
        assert len({w.as_type for w in watched}) == len(watched), "one Watched a kind: the view is keyed by kind"
        self.view = View()
        self.synced = asyncio.Event()  # every kind has been listed once
        self.revision = ""  # the newest seen of all kinds
        self._api = api
        self._watched = tuple(watched)
        self._unsynced = {w.as_type for w in watched}
        self._versions: dict[type[Value], str] = {}  # kind -> watch on from here; absent: list first
        self._told: dict[type[Value], str] = {}  # kind -> its version when `changes` last returned
        self._before: dict[Ref, Value | None] = {}  # what changed since the last look -> what it was then
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"Mirror(revision={self.revision} unsynced={len(self._unsynced)} pending={len(self._before)} {self.view})"
        )

    async def run(self) -> Never:
        """Returns never; what the network does is waited out."""
        async with asyncio.TaskGroup() as tasks:
            for watched in self._watched:
                tasks.create_task(self._follow(watched), name=f"mirror {watched.resource.plural}")
        raise AssertionError("a mirror follows at least one kind, for ever")

    async def changes(self) -> Mapping[Ref, Change]:
        """Waits until all kinds are listed and something differs from the last call; the first call tells all."""
        await self.synced.wait()
        while True:
            await self._changed.wait()
            self._changed.clear()
            before, self._before = self._before, {}
            self._told = dict(self._versions)
            folded = {key: Change(was, self._current(key)) for key, was in before.items()}
            told = {key: change for key, change in folded.items() if change.before != change.after}
            if told:
                return told

    def told(self, as_type: type[Value]) -> int:
        """`changes` has told all that happened to the kind up to this revision; 0 before the first list."""
        versions = self._told if self._before else self._versions
        version = versions.get(as_type, "")
        return int(version) if version.isdigit() else 0

    def _current(self, key: Ref) -> Value | None:
        as_type = next(w.as_type for w in self._watched if w.as_type.__name__ == key.kind)
        return self.view.get(as_type, key.namespace, key.name)

    async def _follow(self, watched: Watched) -> Never:
        backoff = Backoff()
        while True:
            started = time.monotonic()
            try:
                if watched.as_type not in self._versions:
                    await self._list(watched)
                await self._watch(watched, backoff)
                if time.monotonic() - started > 1.0:  # an ordinary end; a server that hangs up at once is not one
                    continue
            except ApiError as error:
                if error.code == 410:
                    log.info("client.mirror.expired kind=%s", watched.resource.kind)
                    self._versions.pop(watched.as_type, None)
                else:
                    log.warning("client.mirror.refused kind=%s error=%r", watched.resource.kind, error.message)
            except ClusterIPError as error:
                log.warning("client.mirror.lost kind=%s error=%r", watched.resource.kind, error.message)
            await asyncio.sleep(backoff.delay())

    async def _list(self, watched: Watched) -> None:
        """Brings the view to what the server has now; only what differs is a change."""
        listing = await self._api.list(
            watched.resource,
            watched.as_type,
            watched.namespace,
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
        )
        there = {ref(value) for value in listing.items}
        gone = [value for value in self.view.list(watched.as_type) if ref(value) not in there]
        for value in gone:
            self._remove(value)
        for value in listing.items:
            self._put(value)
        self._heard(watched, listing.resource_version)
        self._unsynced.discard(watched.as_type)
        if not self._unsynced:
            self.synced.set()

    async def _watch(self, watched: Watched, backoff: Backoff) -> None:
        """Until the server ends it. What comes shows that the server is well: the next wait is a short one."""
        stream = self._api.watch(
            watched.resource,
            watched.as_type,
            watched.namespace,
            resource_version=self._versions[watched.as_type],
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
        )
        async with aclosing(stream) as events:
            async for event in events:
                match event.kind:
                    case EventKind.ADDED | EventKind.MODIFIED:
                        self._put(event.value)
                    case EventKind.DELETED:
                        self._remove(event.value)
                    case EventKind.BOOKMARK:
                        pass
                self._heard(watched, event.resource_version)
                backoff.reset()

    def _put(self, value: Value) -> None:
        meta = metadata(value)
        before = self.view.get(type(value), meta.namespace, meta.name)
        if before is not None and before == value:
            return
        self.view.put(value)
        self._note(ref(value), before)

    def _remove(self, value: Value) -> None:
        meta = metadata(value)
        before = self.view.remove(type(value), meta.namespace, meta.name)
        if before is not None:
            self._note(ref(value), before)

    def _note(self, key: Ref, before: Value | None) -> None:
        self._before.setdefault(key, before)
        self._changed.set()

    def _heard(self, watched: Watched, version: str) -> None:
        self._versions[watched.as_type] = version
        if version.isdigit() and int(version) > int(self.revision or 0):
            self.revision = version
