"""What every store promises, asked of each of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from clusterip.store.base import Check, Compacted, Conflict, Delete, Event, Put, Store
from clusterip.store.history import Limits
from clusterip.store.memory import MemoryStore
from clusterip.store.sqlite import open_store

SMALL = Limits(events=8, size=1 << 20, progress=0.05)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore(SMALL) if request.param == "memory" else await open_store(tmp_path / "store.db", SMALL)
    yield made
    await made.close()


async def put(store: Store, key: str, value: bytes = b"1", revision: int | None = None) -> int:
    checks = [] if revision is None else [Check(key, revision)]
    return await store.commit(checks, [Put(key, value)])


async def events(store: Store, prefix: str, after: int, count: int) -> list[Event]:
    """The next `count` events of the prefix."""
    seen: list[Event] = []
    async with asyncio.timeout(5), aclosing(store.watch(prefix, after)) as watch:
        async for _, batch in watch:
            seen.extend(batch)
            if len(seen) >= count:
                return seen
    raise AssertionError("the watch ended")


async def test_a_new_store_is_empty(store: Store) -> None:
    assert store.revision == 0
    assert await store.get("/a/x") is None
    page = await store.list("/a/")
    assert (page.items, page.revision, page.remaining) == ((), 0, 0)


async def test_what_was_written_is_read_with_its_revisions(store: Store) -> None:
    made = await put(store, "/a/x", b"one")
    changed = await put(store, "/a/x", b"two")
    item = await store.get("/a/x")
    assert item is not None
    assert (item.value, item.created, item.revision) == (b"two", made, changed)
    assert store.revision == changed == made + 1


async def test_a_key_made_again_after_its_deletion_is_new(store: Store) -> None:
    await put(store, "/a/x")
    await store.commit([], [Delete("/a/x")])
    again = await put(store, "/a/x")
    item = await store.get("/a/x")
    assert item is not None
    assert item.created == again


async def test_one_commit_is_one_revision_however_many_keys_it_writes(store: Store) -> None:
    await put(store, "/a/old")
    revision = await store.commit([], [Put("/a/x", b"1"), Put("/b/y", b"2"), Delete("/a/old")])
    assert revision == 2
    assert [item.revision for item in (await store.list("/")).items] == [2, 2]
    assert [(event.key, event.revision) for event in await events(store, "/", 1, 3)] == [
        ("/a/x", 2),
        ("/b/y", 2),
        ("/a/old", 2),
    ]


async def test_a_failed_check_writes_nothing_and_says_what_it_found(store: Store) -> None:
    revision = await put(store, "/a/x", b"old")
    with pytest.raises(Conflict) as caught:
        await store.commit([Check("/a/x", 0)], [Put("/a/x", b"new"), Put("/a/y", b"new")])
    assert (caught.value.key, caught.value.found) == ("/a/x", revision)
    with pytest.raises(Conflict) as caught:
        await store.commit([Check("/a/none", 7)], [Put("/a/y", b"new")])
    assert caught.value.found == 0
    assert store.revision == revision
    assert await store.get("/a/y") is None


async def test_of_many_that_check_the_same_revision_one_wins(store: Store) -> None:
    first = await put(store, "/a/x")
    results = await asyncio.gather(
        *(put(store, "/a/x", bytes([n]), revision=first) for n in range(20)), return_exceptions=True
    )
    assert [type(result) for result in results if not isinstance(result, int)] == [Conflict] * 19
    assert store.revision == first + 1


async def test_writes_that_race_get_a_revision_each(store: Store) -> None:
    revisions = await asyncio.gather(*(put(store, f"/a/{n}") for n in range(50)))
    assert sorted(revisions) == list(range(1, 51))


async def test_a_list_holds_its_prefix_in_key_order_and_nothing_else(store: Store) -> None:
    for key in ("/a/y", "/ab/z", "/a/x", "/a", "/b/x", "/a/x/1"):
        await put(store, key)
    assert [item.key for item in (await store.list("/a/")).items] == ["/a/x", "/a/x/1", "/a/y"]
    assert [item.key for item in (await store.list("/a/x")).items] == ["/a/x", "/a/x/1"]


async def test_pages_follow_each_other_at_one_revision(store: Store) -> None:
    for n in range(5):
        await put(store, f"/a/{n}", b"old")
    first = await store.list("/a/", limit=2)
    assert ([item.key for item in first.items], first.remaining) == (["/a/0", "/a/1"], 3)
    await store.commit([], [Delete("/a/2"), Put("/a/3", b"new"), Put("/a/25", b"new")])
    second = await store.list("/a/", revision=first.revision, after="/a/1", limit=2)
    assert [(item.key, item.value) for item in second.items] == [("/a/2", b"old"), ("/a/3", b"old")]
    assert (second.revision, second.remaining) == (first.revision, 1)
    last = await store.list("/a/", revision=first.revision, after="/a/3", limit=2)
    assert ([item.key for item in last.items], last.remaining) == (["/a/4"], 0)


async def test_a_list_of_a_forgotten_revision_is_refused(store: Store) -> None:
    for n in range(20):
        await put(store, f"/a/{n % 3}", str(n).encode())
    oldest = store.revision - SMALL.events
    assert {item.value for item in (await store.list("/a/", revision=oldest)).items} == {b"9", b"10", b"11"}
    with pytest.raises(Compacted) as caught:
        await store.list("/a/", revision=oldest - 1)
    assert (caught.value.revision, caught.value.oldest) == (oldest - 1, oldest)


async def test_a_watch_gives_every_event_after_its_revision_in_order(store: Store) -> None:
    for n in range(3):
        await put(store, "/a/x", str(n).encode())
    await put(store, "/b/x")

    async def later() -> None:
        await asyncio.sleep(0.01)
        await store.commit([], [Delete("/a/x")])

    async with asyncio.TaskGroup() as group:
        group.create_task(later())
        seen = group.create_task(events(store, "/a/", 1, 3))
    assert [event.revision for event in seen.result()] == [2, 3, 5]
    changed, _, deleted = seen.result()
    assert changed.before is not None
    assert changed.item is not None
    assert (changed.before.value, changed.item.value) == (b"0", b"1")
    assert deleted.item is None
    assert deleted.before is not None
    assert deleted.before.value == b"2"


async def test_a_watch_of_a_quiet_prefix_says_that_time_went_on(store: Store) -> None:
    async with asyncio.timeout(5), aclosing(store.watch("/quiet/", 0)) as watch:
        revision = await put(store, "/a/x")
        async for position, batch in watch:
            if position == revision:
                assert batch == ()
                return


async def test_a_quiet_watch_outlives_the_ring(store: Store) -> None:
    async with asyncio.timeout(5), aclosing(store.watch("/quiet/", 0)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        for n in range(3 * SMALL.events):
            await put(store, f"/a/{n}")
        revision = await put(store, "/quiet/x")
        position, batch = await waiting
        while not batch:
            position, batch = await anext(watch)
    assert (position, [event.key for event in batch]) == (revision, ["/quiet/x"])


async def test_a_watch_from_a_forgotten_revision_is_refused(store: Store) -> None:
    for n in range(20):
        await put(store, f"/a/{n}")
    with pytest.raises(Compacted):
        await anext(store.watch("/a/", 3))


async def test_a_reader_too_slow_to_follow_is_refused(store: Store) -> None:
    await put(store, "/a/x")
    async with aclosing(store.watch("/a/", 0)) as watch:
        await anext(watch)
        for n in range(2 * SMALL.events):
            await put(store, f"/a/{n}")
        with pytest.raises(Compacted):
            await anext(watch)


async def test_a_watch_from_a_revision_to_come_waits_for_it(store: Store) -> None:
    async with asyncio.timeout(5), aclosing(store.watch("/a/", 2)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        for n in range(4):
            await put(store, f"/a/{n}")
        seen = list((await waiting)[1])
        while len(seen) < 2:
            seen.extend((await anext(watch))[1])
    assert [event.revision for event in seen] == [3, 4]
