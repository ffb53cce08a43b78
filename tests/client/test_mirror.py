"""The Mirror against a server that hangs up, forgets and refuses: in the end it knows what the server knows, and
every change it told leads there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.client.fake_apiserver import FakeApiServer
from tests.examples import share
from tests.waiting import until

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Backoff, Mirror, Watched
from clusterip.client.view import Change, Ref
from clusterip.model.objects import Node, Pod, Value
from clusterip.model.resources import NODES, PODS
from clusterip.model.status import Object

WATCHED = (Watched(PODS, Pod), Watched(NODES, Node))


def pod(name: str, node: str = "") -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node}}


@asynccontextmanager
async def mirrored(server: FakeApiServer) -> AsyncIterator[Mirror]:
    async with Api(Connection(server.url)) as api:
        mirror = Mirror(api, WATCHED)
        task = asyncio.create_task(mirror.run())
        try:
            yield mirror
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


def node_of(value: Value | None) -> str | None:
    return value.spec.node_name if isinstance(value, Pod) else None


async def test_the_first_changes_are_all_there_is(server: FakeApiServer) -> None:
    await server.put(PODS, pod("a"))
    await server.put(NODES, {"metadata": {"name": "node-1"}})
    async with mirrored(server) as mirror:
        told = await mirror.changes()
        assert set(told) == {Ref("Pod", "default", "a"), Ref("Node", "", "node-1")}
        assert all(change.before is None for change in told.values())
        assert mirror.revision == str(server.revision)
        assert mirror.synced.is_set()


async def test_nothing_is_told_before_every_kind_is_listed(server: FakeApiServer) -> None:
    await server.put(PODS, pod("a"))
    server.refuse = 3
    async with mirrored(server) as mirror:
        changes = asyncio.create_task(mirror.changes())
        await until(lambda: mirror.view.get(Pod, "default", "a") is not None)
        told = await changes
        assert mirror.synced.is_set()
        assert set(told) == {Ref("Pod", "default", "a")}


async def test_changes_of_one_object_are_told_as_one(server: FakeApiServer) -> None:
    await server.put(PODS, pod("a"))
    async with mirrored(server) as mirror:
        await mirror.changes()
        for node in ("node-1", "node-2", "node-3"):
            await server.put(PODS, pod("a", node))
        await until(lambda: node_of(mirror.view.get(Pod, "default", "a")) == "node-3")
        (change,) = (await mirror.changes()).values()
        assert (node_of(change.before), node_of(change.after)) == ("", "node-3")


async def test_what_came_and_went_between_two_looks_is_not_told(server: FakeApiServer) -> None:
    async with mirrored(server) as mirror:
        await mirror.synced.wait()
        await server.put(PODS, pod("brief"))
        await until(lambda: mirror.view.get(Pod, "default", "brief") is not None)
        await server.remove(PODS, "default", "brief")
        await server.put(PODS, pod("stays"))
        await until(lambda: mirror.view.get(Pod, "default", "stays") is not None)
        assert set(await mirror.changes()) == {Ref("Pod", "default", "stays")}


async def test_after_a_410_only_what_differs_is_told(server: FakeApiServer) -> None:
    for name in "abc":
        await server.put(PODS, pod(name))
    async with mirrored(server) as mirror:
        await mirror.changes()
        watches = len(server.requests)
        server.refuse = 2  # keeps the Mirror away while the server changes
        await server.hang_up()
        await until(lambda: len(server.requests) >= watches + 2)
        await server.remove(PODS, "default", "b")
        await server.put(PODS, pod("c", "node-1"))
        await server.forget()
        await until(lambda: node_of(mirror.view.get(Pod, "default", "c")) == "node-1")
        told = await mirror.changes()
        assert {key.name: (node_of(c.before), node_of(c.after)) for key, c in told.items()} == {
            "b": ("", None),
            "c": ("", "node-1"),
        }


async def test_a_watch_that_ends_goes_on_from_where_it_was(server: FakeApiServer) -> None:
    await server.put(PODS, pod("a"))
    async with mirrored(server) as mirror:
        await mirror.changes()
        lists = sum(method == "GET" and "pods" in path for method, path in server.requests)
        await server.hang_up()
        await server.put(PODS, pod("b"))
        told = await mirror.changes()
        assert set(told) == {Ref("Pod", "default", "b")}
        assert mirror._versions[Pod] == str(server.revision)
        assert lists >= 1


def test_waits_double_up_to_a_limit_and_are_short_again_after_a_success() -> None:
    backoff = Backoff(first=1.0, most=4.0)
    delays = [backoff.delay() for _ in range(4)]
    for delay, ceiling in zip(delays, (1.0, 2.0, 4.0, 4.0), strict=True):
        assert ceiling / 2 <= delay <= ceiling
    backoff.reset()
    assert backoff.delay() <= 1.0


NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.sampled_from(["", "node-1", "node-2"])),
        st.tuples(st.just("remove"), NAMES, st.just("")),
        st.tuples(st.sampled_from(["hang_up", "forget", "refuse", "look", "wait"]), st.just(""), st.just("")),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=share(25))
@given(STEPS)
def test_whatever_happens_the_told_changes_lead_to_what_the_server_has(steps: list[tuple[str, str, str]]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, str, str]]) -> None:
    told: dict[Ref, Value] = {}

    def learn(changes: dict[Ref, Change]) -> None:
        for key, change in changes.items():
            assert told.get(key) == change.before, f"{key}: a change was lost or told twice"
            assert change.before != change.after
            if change.after is None:
                del told[key]
            else:
                told[key] = change.after

    async with FakeApiServer() as server, mirrored(server) as mirror:
        server.page = 2
        acts: dict[str, Callable[[], Awaitable[None]]] = {"hang_up": server.hang_up, "forget": server.forget}
        for act, name, node in steps:
            match act:
                case "put":
                    await server.put(PODS, pod(name, node))
                case "remove" if (PODS, "default", name) in server.objects:
                    await server.remove(PODS, "default", name)
                case "hang_up" | "forget":
                    await acts[act]()
                case "refuse":
                    server.refuse = 1
                case "look" if mirror.synced.is_set() and mirror._before:
                    try:
                        async with asyncio.timeout(0.01):
                            learn(dict(await mirror.changes()))
                    except TimeoutError:
                        pass  # there and back: nothing to tell
                case _:
                    await asyncio.sleep(0.002)
        await server.put(NODES, {"metadata": {"name": "last"}})
        await server.put(PODS, pod("last"))
        last = (Ref("Node", "", "last"), Ref("Pod", "default", "last"))
        async with asyncio.timeout(10):
            while not all(key in told for key in last):
                learn(dict(await mirror.changes()))
        found = {key.name: node_of(value) for key, value in told.items() if key.kind == "Pod"}
        assert found == {n: o["spec"]["nodeName"] for (r, _, n), o in server.objects.items() if r == PODS}
