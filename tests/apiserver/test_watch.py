"""Watches: everything that happens after a revision, once, in order; and a clear word when that cannot be."""

import asyncio
from contextlib import aclosing
from typing import Any

from tests.apiserver.serving import CONFIG_MAPS, SERVICES, Api, config_map, running, service

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def short(event: Any) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def test_a_watch_follows_a_list_without_a_gap(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    version = (await api.ok("GET", CONFIG_MAPS))["metadata"]["resourceVersion"]
    await api.ok("POST", CONFIG_MAPS, config_map("b"))
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    last = await api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})
    await api.ok("DELETE", f"{CONFIG_MAPS}/a")
    seen = await api.events(f"{CONFIG_MAPS}?watch=true&resourceVersion={version}", 4)
    assert [short(event) for event in seen] == [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen[2]["object"] == last
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions)), "the deletion has a version of its own"
    assert seen[3]["object"]["data"] == {"x": "2"}


async def test_a_watch_without_a_version_begins_with_what_there_is(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    for query in ("watch=1", "watch=True&resourceVersion=0"):
        assert [short(e) for e in await api.events(f"{CONFIG_MAPS}?{query}", 1)] == [("ADDED", "a")]


async def test_what_happens_while_one_watches_arrives_at_once(api: Api) -> None:
    async with asyncio.timeout(10), aclosing(api.watch(f"{CONFIG_MAPS}?watch=true")) as stream:
        for n in range(3):
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await api.ok("POST", CONFIG_MAPS, config_map(f"n{n}"))
            assert short(await waiting) == ("ADDED", f"n{n}")


async def test_an_object_that_begins_or_ceases_to_match_comes_or_goes(api: Api) -> None:
    version = (await api.ok("GET", CONFIG_MAPS))["metadata"]["resourceVersion"]
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    for labels in ({"on": "1"}, {"other": "1"}, {"on": None}, {"more": "1"}):
        await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": labels}})
    await api.ok("DELETE", f"{CONFIG_MAPS}/a")
    await api.ok("POST", CONFIG_MAPS, {**config_map("b"), "metadata": {"name": "b", "labels": {"on": "2"}}})
    seen = await api.events(f"{CONFIG_MAPS}?watch=true&resourceVersion={version}&labelSelector=on", 4)
    assert [short(e) for e in seen] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


async def test_one_object_can_be_watched(api: Api) -> None:
    for name in ("a", "b"):
        await api.ok("POST", CONFIG_MAPS, config_map(name))
    for path in (f"{CONFIG_MAPS}/b?watch=true", f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name=b"):
        assert [short(e) for e in await api.events(path, 1)] == [("ADDED", "b")]


async def test_a_watch_ends_when_its_time_is_over_with_a_bookmark(api: Api) -> None:
    await api.ok("POST", SERVICES, service("a"))

    async def seen_with(more: str) -> list[Any]:
        return [event async for event in api.watch(f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1{more}")]

    seen, without = await asyncio.gather(seen_with("&allowWatchBookmarks=true"), seen_with(""))
    assert [event["type"] for event in seen] == ["BOOKMARK"]
    assert seen[0]["object"]["kind"] == "ConfigMap"
    assert seen[0]["object"]["metadata"]["resourceVersion"] == str(api.parts.registry.store.revision)
    assert without == []


async def test_initial_events_end_with_a_bookmark_that_says_so(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    added, end = await api.events(f"{CONFIG_MAPS}?{query}", 2)
    assert short(added) == ("ADDED", "a")
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_forgotten_version_is_answered_with_410(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    store = api.parts.registry.store
    store._history.oldest = store.revision  # type: ignore[attr-defined]
    (event,) = [event async for event in api.watch(f"{CONFIG_MAPS}?watch=true&resourceVersion=1")]
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_version_of_another_store_is_answered_with_410(api: Api) -> None:
    (event,) = [event async for event in api.watch(f"{CONFIG_MAPS}?watch=true&resourceVersion=999999")]
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_tables_are_watched_with_their_columns_once(api: Api) -> None:
    for name in ("a", "b"):
        await api.ok("POST", SERVICES, service(name))
    seen = await api.events(f"{SERVICES}?watch=true&labelSelector=!component", 2, accept=TABLE)
    assert [event["object"]["kind"] for event in seen] == ["Table", "Table"]
    assert [event["object"]["rows"][0]["cells"][0] for event in seen] == ["a", "b"]
    assert seen[0]["object"]["columnDefinitions"]
    assert not seen[1]["object"]["columnDefinitions"]


async def test_a_client_that_goes_away_is_noticed_though_nothing_happens(api: Api) -> None:
    gauge = api.parts.app.metrics.watches.labels("WATCH", "configmaps")
    async with api.session.get(f"{api.url}{CONFIG_MAPS}?watch=true") as answer:
        assert answer.status == 200
        assert gauge._value.get() == 1
        answer.close()
    async with asyncio.timeout(5):
        while gauge._value.get():  # noqa: ASYNC110  a gauge wakes nobody
            await asyncio.sleep(0.01)


async def test_a_server_that_ends_ends_its_watches() -> None:
    async with running() as api:
        stream = api.watch(f"{CONFIG_MAPS}?watch=true")
        waiting = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0.1)
        api.parts.app.stopping.set()
        async with asyncio.timeout(5):
            assert await waiting is None


async def test_many_watchers_all_see_everything_in_order(api: Api) -> None:
    watchers = [asyncio.ensure_future(api.events(f"{CONFIG_MAPS}?watch=true&resourceVersion=1", 60)) for _ in range(20)]
    await asyncio.gather(*(api.ok("POST", CONFIG_MAPS, config_map(f"n{n}")) for n in range(60)))
    seen = await asyncio.gather(*watchers)
    assert all(one == seen[0] for one in seen)
    assert {short(event)[1] for event in seen[0]} == {f"n{n}" for n in range(60)}
