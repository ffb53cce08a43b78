"""Any sequence of commits, lists at old revisions, watches and forgetting, held against a model that keeps it all."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.examples import share

from clusterip.store.base import Check, Compacted, Conflict, Delete, Event, Put, Store
from clusterip.store.history import Limits
from clusterip.store.memory import MemoryStore
from clusterip.store.sqlite import open_store

KEYS = st.sampled_from(["/a/x", "/a/y", "/ab/x", "/b/x"])
PREFIXES = st.sampled_from(["/", "/a", "/a/", "/b/"])
VALUES = st.binary(min_size=1, max_size=2)
LIMITS = Limits(events=6, size=1 << 20, progress=0.001)
World = dict[str, tuple[bytes, int, int]]  # key -> value, created, revision


class Model(RuleBasedStateMachine):
    """`worlds[n]` is every key at revision n."""

    watches = Bundle("watches")

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.worlds: list[World] = [{}]
        self.store = self.runner.run(self.open())

    async def open(self) -> Store:
        return MemoryStore(LIMITS)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.store.close())
            self.runner.close()

    @rule(writes=st.dictionaries(KEYS, VALUES | st.none(), max_size=3))
    def commit(self, writes: dict[str, bytes | None]) -> None:
        made = self.runner.run(
            self.store.commit([], [Delete(k) if v is None else Put(k, v) for k, v in writes.items()])
        )
        assert made == len(self.worlds)
        self.worlds.append(self.after(writes))

    @rule(key=KEYS, value=VALUES, off=st.sampled_from([0, 0, 1]))
    def replace(self, key: str, value: bytes, off: int) -> None:
        """A commit under the right revision passes, under another it is refused."""
        found = self.worlds[-1][key][2] if key in self.worlds[-1] else 0
        try:
            self.runner.run(self.store.commit([Check(key, found + off)], [Put(key, value)]))
        except Conflict as conflict:
            assert off
            assert conflict.found == found  # noqa: PT017  both ways are right
        else:
            assert not off
            self.worlds.append(self.after({key: value}))

    def after(self, writes: dict[str, bytes | None]) -> World:
        world, revision = dict(self.worlds[-1]), len(self.worlds)
        for key, value in writes.items():
            if value is None:
                world.pop(key, None)
            else:
                world[key] = (value, world[key][1] if key in world else revision, revision)
        return world

    @rule(prefix=PREFIXES, back=st.integers(0, 9), limit=st.integers(0, 3))
    def list_at(self, prefix: str, back: int, limit: int) -> None:
        """Paged to its end, a list is the world of its revision; or that revision is said to be forgotten."""
        revision = max(len(self.worlds) - 1 - back, 0)
        seen: World = {}
        after = ""
        while True:
            try:
                page = self.runner.run(self.store.list(prefix, revision=revision, after=after, limit=limit))
            except Compacted as compacted:
                assert revision < compacted.oldest <= len(self.worlds) - 1  # noqa: PT017  both ways are right
                return
            seen.update((item.key, (item.value, item.created, item.revision)) for item in page.items)
            if not page.remaining:
                break
            after = page.items[-1].key
        assert page.revision == revision or not revision
        want = {k: v for k, v in self.worlds[revision or -1].items() if k.startswith(prefix)}
        assert list(seen.items()) == sorted(want.items())

    @rule(target=watches, prefix=PREFIXES, back=st.integers(0, 8))
    def watch(self, prefix: str, back: int) -> "Watched":
        return Watched(self.store, prefix, max(len(self.worlds) - 1 - back, 0))

    @rule(target=watches, watched=consumes(watches))
    def follow(self, watched: "Watched") -> object:
        """What a watch brings turns the world at its last position into the world at its new one."""
        position = watched.position
        try:
            position, events = self.runner.run(watched.step(self.store, len(self.worlds) - 1))
        except Compacted as compacted:
            assert watched.position < compacted.oldest  # noqa: PT017  both ways are right
            return multiple()
        world = {k: v for k, v in self.worlds[watched.position].items() if k.startswith(watched.prefix)}
        for event in events:
            assert watched.position < event.revision <= position
            before = event.before and (event.before.value, event.before.created, event.before.revision)
            assert before == world.pop(event.key, None)
            if event.item:
                world[event.key] = (event.item.value, event.item.created, event.item.revision)
        assert world == {k: v for k, v in self.worlds[position].items() if k.startswith(watched.prefix)}
        watched.position = position
        return watched

    @invariant()
    def every_key_reads_as_it_is(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.revision == len(self.worlds) - 1
        for key in ("/a/x", "/a/y", "/ab/x", "/b/x"):
            item = self.runner.run(self.store.get(key))
            assert (item and (item.value, item.created, item.revision)) == self.worlds[-1].get(key)


class Watched:
    """One reader, who goes on from where it was when the store has been opened anew."""

    def __init__(self, store: Store, prefix: str, after: int) -> None:
        self.prefix = prefix
        self.position = after
        self._store = store
        self._stream: AsyncGenerator[tuple[int, tuple[Event, ...]], None] = store.watch(prefix, after)

    async def step(self, store: Store, now: int) -> tuple[int, list[Event]]:
        """Everything up to revision `now`."""
        if store is not self._store:
            self._store, self._stream = store, store.watch(self.prefix, self.position)
        position, events = self.position, list[Event]()
        async with asyncio.timeout(2):
            while position < now:
                position, batch = await anext(self._stream)
                events.extend(batch)
        return position, events


class OnDisk(Model):
    """The same, with restarts."""

    async def open(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return await open_store(Path(self.folder.name) / "store.db", LIMITS)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule()
    def restart(self) -> None:
        async def again() -> Store:
            await self.store.close()
            return await open_store(Path(self.folder.name) / "store.db", LIMITS)

        self.store = self.runner.run(again())


TestMemoryModel = Model.TestCase
TestMemoryModel.settings = settings(max_examples=share(100), stateful_step_count=40, deadline=None)
TestSQLiteModel = OnDisk.TestCase
TestSQLiteModel.settings = settings(max_examples=share(40), stateful_step_count=30, deadline=None)
