"""What every store keeps in memory: each key as it is now, the latest commits, and who follows them.

Belongs to one event loop. Nothing here waits for a reader: a follower keeps only a mark of the first commit it has
not been given, and reads the shared ring when its owner asks; if the ring has moved on by then, it gets Compacted.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from clusterip.store.base import Check, Compacted, Conflict, Delete, Event, Item, Page, Put

_LAST = "\U0010ffff"  # sorts behind every key with the same prefix


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the past stays: both bounds hold. `progress` is how often, in seconds, a quiet watch says that
    time went on."""

    events: int = 20_000
    size: int = 128 << 20  # bytes of values
    progress: float = 1.0


class _Follower:
    def __init__(self) -> None:
        self.missed = 0  # revision of the first commit not given yet, 0: none
        self.wake = asyncio.Event()


@dataclass(frozen=True, slots=True)
class _Commit:
    revision: int
    events: tuple[Event, ...]
    size: int


class History:
    def __init__(self, items: Iterable[Item] = (), revision: int = 0, limits: Limits | None = None) -> None:
        self._items = {item.key: item for item in items}
        self._keys = sorted(self._items)
        self._limits = limits or Limits()
        self._ring: deque[_Commit] = deque()
        self._events = 0
        self._size = 0
        self._followers: dict[str, list[_Follower]] = {}
        self.revision = revision
        self.oldest = revision  # every event behind this revision is still in the ring

    def get(self, key: str) -> Item | None:
        return self._items.get(key)

    def check(self, checks: Sequence[Check]) -> None:
        """Raises Conflict for the first check that does not hold."""
        for check in checks:
            found = self._items.get(check.key)
            if (revision := found.revision if found else 0) != check.revision:
                raise Conflict(check.key, revision)

    def apply(self, writes: Sequence[Put | Delete]) -> int:
        """Make `writes` the next revision, and wake whom it concerns."""
        self.revision += 1
        events = tuple(event for write in writes if (event := self._write(write)) is not None)
        size = sum(len(item.value) for event in events for item in (event.item, event.before) if item)
        self._ring.append(_Commit(self.revision, events, size))
        self._events += len(events)
        self._size += size
        self._trim()
        for prefix, followers in self._followers.items():
            if any(event.key.startswith(prefix) for event in events):
                for follower in followers:
                    follower.missed = follower.missed or self.revision
                    follower.wake.set()
        return self.revision

    def page(self, prefix: str, revision: int, after: str, limit: int) -> Page:
        """One page of the keys of `revision` (0: now). Raises Compacted."""
        revision = revision or self.revision
        if revision < self.oldest:
            raise Compacted(revision, self.oldest)
        start = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after) if after else 0)
        keys = self._keys[start : bisect_left(self._keys, prefix + _LAST, lo=start)]
        past = self._past(prefix, revision)
        if past:
            keys = [key for key in keys if key not in past]
            keys = sorted([*keys, *(key for key, item in past.items() if item and key > after)])
        shown = keys[:limit] if limit else keys
        items = tuple(past.get(key) or self._items[key] for key in shown)
        return Page(items, revision, len(keys) - len(shown))

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[int, tuple[Event, ...]], None]:
        follower = _Follower()
        self._followers.setdefault(prefix, []).append(follower)
        try:
            position = after
            follower.missed = after + 1 if after < self.revision else 0
            while True:
                if not follower.missed:
                    await self._sleep(follower)
                if first := follower.missed:
                    follower.missed = 0
                    events = tuple(self._since(prefix, max(first - 1, after)))
                    position = self.revision
                    yield position, events
                elif self.revision > position:
                    position = self.revision
                    yield position, ()
        finally:
            self._forget(prefix, follower)

    async def _sleep(self, follower: _Follower) -> None:
        """Until something was missed, or `progress` seconds have passed."""
        follower.wake.clear()
        try:
            async with asyncio.timeout(self._limits.progress):
                await follower.wake.wait()
        except TimeoutError:
            return

    def _forget(self, prefix: str, follower: _Follower) -> None:
        left = [other for other in self._followers[prefix] if other is not follower]
        if left:
            self._followers[prefix] = left
        else:
            del self._followers[prefix]

    def _since(self, prefix: str, after: int) -> Iterator[Event]:
        if after < self.oldest:
            raise Compacted(after, self.oldest)
        new: list[_Commit] = []
        for commit in reversed(self._ring):
            if commit.revision <= after:
                break
            new.append(commit)
        for commit in reversed(new):
            yield from (event for event in commit.events if event.key.startswith(prefix))

    def _past(self, prefix: str, revision: int) -> Mapping[str, Item | None]:
        """The keys that have changed since `revision`, as they were then."""
        past: dict[str, Item | None] = {}
        for commit in reversed(self._ring):
            if commit.revision <= revision:
                break
            past.update((event.key, event.before) for event in commit.events if event.key.startswith(prefix))
        return past

    def _write(self, write: Put | Delete) -> Event | None:
        before = self._items.get(write.key)
        if isinstance(write, Put):
            item = Item(write.key, write.value, before.created if before else self.revision, self.revision)
            self._items[write.key] = item
            if before is None:
                insort(self._keys, write.key)
            return Event(self.revision, write.key, item, before)
        if before is None:
            return None
        del self._items[write.key]
        del self._keys[bisect_left(self._keys, write.key)]
        return Event(self.revision, write.key, None, before)

    def _trim(self) -> None:
        while self._ring and (self._events > self._limits.events or self._size > self._limits.size):
            gone = self._ring.popleft()
            self._events -= len(gone.events)
            self._size -= gone.size
            self.oldest = gone.revision
