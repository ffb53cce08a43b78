from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.services.documents import endpoint, service, slice_of

from clusterip.model.objects import Endpoint, EndpointSlice, Namespace, ObjectMeta, Service
from clusterip.services.resolve import NodeContext
from clusterip.services.table import Entry, EntryKey
from clusterip.services.tracker import Change, ChangeTracker, ServiceName, ServiceTable, touched

updates = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 1, 2])), max_size=8)


def note_all(
    tracker: ChangeTracker[str, int], world: dict[str, int | None], news: list[tuple[str, int | None]]
) -> None:
    for key, after in news:
        tracker.note(key, Change(world.get(key), after))
        world[key] = after


def applied(world: Mapping[str, int | None], changes: Mapping[str, Change[int]]) -> dict[str, int | None]:
    for key, change in changes.items():
        assert world.get(key) == change.before
    return {**world, **{key: change.after for key, change in changes.items()}}


def present(world: Mapping[str, int | None]) -> dict[str, int]:
    return {key: value for key, value in world.items() if value is not None}


@given(updates)
def test_what_is_taken_turns_the_old_world_into_the_new(news: list[tuple[str, int | None]]) -> None:
    tracker: ChangeTracker[str, int] = ChangeTracker()
    world: dict[str, int | None] = {}
    note_all(tracker, world, news)
    assert present(applied({}, tracker.take())) == present(world)
    assert not tracker.take()


@given(updates, updates)
def test_a_refused_batch_is_not_lost(first: list[tuple[str, int | None]], since: list[tuple[str, int | None]]) -> None:
    tracker: ChangeTracker[str, int] = ChangeTracker()
    world: dict[str, int | None] = {}
    note_all(tracker, world, first)
    taken = tracker.take()
    note_all(tracker, world, since)
    tracker.give_back(taken)
    assert present(applied({}, tracker.take())) == present(world)


@given(updates)
def test_there_and_back_leaves_nothing_to_do(news: list[tuple[str, int | None]]) -> None:
    tracker: ChangeTracker[str, int] = ChangeTracker()
    world: dict[str, int | None] = {}
    note_all(tracker, world, news)
    note_all(tracker, world, [("a", None), ("b", None)])
    assert len(tracker) == 0


class Objects:
    """A View of one Service and its slices."""

    def __init__(self, of: Service | None, *slices: EndpointSlice) -> None:
        self.of, self.found = of, slices

    def get(self, as_type: type[Service], namespace: str, name: str) -> Service | None:
        return self.of

    def slices(self, namespace: str, service: str) -> tuple[EndpointSlice, ...]:
        return self.found


WEB = ServiceName("default", "web")
NODE = NodeContext("node-1")


def test_only_what_differs_comes_back() -> None:
    table = ServiceTable(["IPv4"])
    one = slice_of(endpoint("10.244.1.2"))
    ports = [{"name": "http", "port": 80}, {"name": "metrics", "port": 9100}]
    added = table.update([WEB], Objects(service(ports=ports), one), NODE)
    assert sorted(key.name.port for key in added) == ["http", "metrics"]
    assert table.update([WEB], Objects(service(ports=ports), one), NODE) == {}
    two = slice_of(endpoint("10.244.1.2"), endpoint("10.244.1.3"))
    [(key, change)] = table.update([WEB], Objects(service(ports=ports), two), NODE).items()
    assert (key.name.port, change.before is not None, change.after is not None) == ("http", True, True)


def test_a_service_that_goes_takes_its_entries_along() -> None:
    table = ServiceTable(["IPv4"])
    before = dict(table.update([WEB], Objects(service()), NODE))
    after = table.update([WEB], Objects(None), NODE)
    assert {k: c.before for k, c in after.items()} == {k: c.after for k, c in before.items()}
    assert list(table) == []
    assert table.services() == ()


def test_a_change_to_another_proxys_service_removes_it() -> None:
    table = ServiceTable(["IPv4"])
    table.update([WEB], Objects(service()), NODE)
    labelled = service(labels={"service.kubernetes.io/service-proxy-name": "mine"})
    [change] = table.update([WEB], Objects(labelled), NODE).values()
    assert change.after is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=6))
def test_changes_lead_from_the_old_table_to_the_new(history: list[tuple[bool, int, bool]]) -> None:
    table = ServiceTable(["IPv4", "IPv6"])
    world: dict[EntryKey, Entry | None] = {}
    for there, backends, dual in history:
        six = {"clusterIPs": ["10.96.0.10", "fd00:96::a"]} if dual else {}
        objects = Objects(
            service(**six) if there else None, slice_of(*(endpoint(f"10.244.1.{n}") for n in range(1, backends + 1)))
        )
        for key, change in table.update([WEB], objects, NODE).items():
            assert world.get(key) == change.before != change.after
            world[key] = change.after
    assert {e.key: e for e in table} == {k: e for k, e in world.items() if e is not None}


def test_a_slice_that_moves_bears_on_both_services() -> None:
    one = slice_of()
    labels = {"kubernetes.io/service-name": "other"}
    moved = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))
    assert touched([Change(one, moved)]) == {WEB, ServiceName("default", "other")}


def test_services_bear_on_themselves_and_other_kinds_on_none() -> None:
    unlabelled = EndpointSlice(metadata=ObjectMeta(name="x", namespace="default"), endpoints=(Endpoint(),))
    nothing: list[Change[Namespace | EndpointSlice]] = [Change(None, Namespace()), Change(unlabelled, None)]
    assert touched(nothing) == set()
    assert touched([Change(service(), None)]) == {WEB}
