"""The worked examples of conformance 3.6, and what must hold whatever happens."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from clusterip.controllers.endpointslice.packing import Packing, identity, pack
from clusterip.controllers.endpointslice.wanted import Group, port_key
from clusterip.model.objects import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    ObjectMeta,
    ObjectReference,
)

PORTS = (EndpointPort(name="http", port=8080),)
OTHER = (EndpointPort(name="http", port=9090),)


def endpoint(number: int, *, ready: bool = True) -> Endpoint:
    return Endpoint(
        addresses=(f"10.244.{number // 250}.{number % 250 + 1}",),
        conditions=EndpointConditions(ready=ready, serving=ready, terminating=False),
        target_ref=ObjectReference(kind="Pod", namespace="default", name=f"p{number}"),
    )


def endpoints(*numbers: int) -> tuple[Endpoint, ...]:
    return tuple(endpoint(number) for number in numbers)


def slice_of(name: str, held: Sequence[Endpoint], ports: tuple[EndpointPort, ...] = PORTS) -> EndpointSlice:
    return EndpointSlice(metadata=ObjectMeta(name=name), endpoints=tuple(held), ports=ports)


def packed(slices: Sequence[EndpointSlice], wanted: Sequence[Endpoint], limit: int = 100) -> Packing:
    return pack(slices, [Group(PORTS, tuple(wanted))] if wanted else [], limit, lambda slice_: False)


def sizes(slices: Sequence[EndpointSlice]) -> list[int]:
    return [len(slice_.endpoints or ()) for slice_ in slices]


def after(slices: Sequence[EndpointSlice], packing: Packing) -> list[EndpointSlice]:
    """The slices there are once the packing is written."""
    rewritten = {r.slice.metadata.name: slice_of(r.slice.metadata.name, r.endpoints, r.ports) for r in packing.rewrites}
    gone = {slice_.metadata.name for slice_ in packing.deletes}
    kept = [rewritten.get(s.metadata.name, s) for s in slices if s.metadata.name not in gone]
    taken = {slice_.metadata.name for slice_ in slices}
    names = (name for number in range(10_000) if (name := f"new-{number}") not in taken)
    return kept + [slice_of(next(names), make.endpoints, make.ports) for make in packing.makes]


def test_250_pods_make_slices_of_100_100_and_50() -> None:
    assert [len(make.endpoints) for make in packed([], endpoints(*range(250))).makes] == [100, 100, 50]


def test_ten_more_go_into_the_slice_that_has_room_with_one_update() -> None:
    slices = after([], packed([], endpoints(*range(250))))
    packing = packed(slices, endpoints(*range(260)))
    assert [len(r.endpoints) for r in packing.rewrites] == [60]
    assert not packing.makes
    assert sizes(packing.unchanged) == [100, 100]


def test_45_more_that_fit_nowhere_whole_make_a_new_slice() -> None:
    slices = after([], packed([], endpoints(*range(260))))
    packing = packed(slices, endpoints(*range(305)))
    assert [len(make.endpoints) for make in packing.makes] == [45]
    assert not packing.rewrites


def test_what_empties_is_not_merged() -> None:
    slices = [
        slice_of("a", endpoints(*range(100))),
        slice_of("b", endpoints(*range(100, 200))),
        slice_of("c", endpoints(*range(200, 260))),
        slice_of("d", endpoints(*range(260, 305))),
    ]
    packing = packed(slices, endpoints(0, *range(100, 305)))
    assert sorted(sizes(after(slices, packing))) == [1, 45, 60, 100]
    assert len(packing.rewrites) == 1


def test_new_pods_go_into_a_slice_that_is_written_anyway() -> None:
    slices = [slice_of("c", endpoints(*range(60))), slice_of("d", endpoints(*range(60, 155)))]
    wanted = (endpoint(0, ready=False), *endpoints(*range(1, 160)))
    packing = packed(slices, wanted)
    assert [(r.slice.metadata.name, len(r.endpoints)) for r in packing.rewrites] == [("c", 65)]


def test_of_the_slices_that_are_written_anyway_the_fullest_is_filled_first() -> None:
    slices = [slice_of("a", endpoints(*range(40))), slice_of("b", endpoints(*range(40, 100)))]
    wanted = (
        endpoint(0, ready=False),
        *endpoints(*range(1, 40)),
        endpoint(40, ready=False),
        *endpoints(*range(41, 145)),
    )
    packing = packed(slices, wanted)
    assert {r.slice.metadata.name: len(r.endpoints) for r in packing.rewrites} == {"a": 45, "b": 100}


def test_a_full_slices_worth_left_over_makes_a_new_slice() -> None:
    packing = pack([slice_of("a", endpoints(500))], [Group(PORTS, endpoints(500, *range(100)))], 101, lambda s: False)
    assert [len(r.endpoints) for r in packing.rewrites] == [101]
    packing = packed([slice_of("a", endpoints(500))], endpoints(500, *range(100)))
    assert [len(make.endpoints) for make in packing.makes] == [100]


def test_without_endpoints_there_is_one_placeholder_and_it_is_kept() -> None:
    packing = packed([], ())
    assert [(make.ports, make.endpoints) for make in packing.makes] == [((), ())]
    placeholder = slice_of("p", (), ())
    assert packed([placeholder], ()).unchanged == (placeholder,)


def test_the_last_slice_becomes_the_placeholder_and_the_placeholder_the_first_slice() -> None:
    last = slice_of("s", endpoints(1))
    (rewrite,) = packed([last], ()).rewrites
    assert (rewrite.slice.metadata.name, rewrite.endpoints, rewrite.ports) == ("s", (), ())
    (rewrite,) = packed([slice_of("s", (), ())], endpoints(1)).rewrites
    assert (rewrite.slice.metadata.name, rewrite.ports) == ("s", PORTS)


def test_a_change_of_the_port_set_keeps_the_name() -> None:
    packing = pack([slice_of("s", endpoints(1, 2))], [Group(OTHER, endpoints(1, 2))], 100, lambda s: False)
    (rewrite,) = packing.rewrites
    assert (rewrite.slice.metadata.name, rewrite.ports) == ("s", OTHER)
    assert not packing.makes
    assert not packing.deletes


def test_outdated_metadata_is_written_with_the_endpoints_as_they_are() -> None:
    slices = [slice_of("a", endpoints(1)), slice_of("b", endpoints(2))]
    packing = pack(slices, [Group(PORTS, endpoints(1, 2))], 100, lambda s: s.metadata.name == "b")
    assert [(r.slice.metadata.name, r.endpoints) for r in packing.rewrites] == [("b", endpoints(2))]


def test_an_endpoint_that_is_in_two_slices_stays_in_one() -> None:
    slices = [slice_of("a", endpoints(1, 2)), slice_of("b", endpoints(2, 3))]
    left = after(slices, packed(slices, endpoints(1, 2, 3)))
    assert sorted(identity(e)[3] for s in left for e in s.endpoints or ()) == ["p1", "p2", "p3"]


WANTED = st.dictionaries(st.integers(0, 30), st.tuples(st.booleans(), st.sampled_from([PORTS, OTHER, ()])))


@given(st.lists(WANTED, min_size=1, max_size=8), st.integers(1, 7))
def test_after_any_changes_the_slices_hold_exactly_what_is_wanted(
    history: list[dict[int, tuple[bool, tuple[EndpointPort, ...]]]], limit: int
) -> None:
    slices: list[EndpointSlice] = []
    for wanted in history:
        groups = [
            Group(ports, found)
            for ports in (PORTS, OTHER, ())
            if (found := tuple(endpoint(n, ready=ready) for n, (ready, of) in sorted(wanted.items()) if of == ports))
        ]
        packing = pack(slices, groups, limit, lambda slice_: False)
        before, slices = slices, after(slices, packing)
        held = [(identity(e), e.conditions.ready, s.ports) for s in slices for e in s.endpoints or ()]
        assert sorted(held, key=repr) == sorted(
            ((identity(e), e.conditions.ready, g.ports) for g in groups for e in g.endpoints), key=repr
        )
        assert slices
        assert max(sizes(slices)) <= limit
        assert len({s.metadata.name for s in slices}) == len(slices)
        assert all(s.endpoints for s in slices) or len(slices) == 1
        again = pack(slices, groups, limit, lambda slice_: False)
        assert not again.makes
        assert not again.rewrites
        assert not again.deletes
        _untouched_unless_needed(before, packing, groups)


def _untouched_unless_needed(before: Sequence[EndpointSlice], packing: Packing, groups: Sequence[Group]) -> None:
    """A slice is written for what it held, or because all of a group's new endpoints went into it."""
    wanted = {(tuple(map(port_key, g.ports)), identity(e)): e for g in groups for e in g.endpoints}
    for rewrite in packing.rewrites:
        ports = tuple(map(port_key, rewrite.slice.ports or ()))
        old = {identity(e): e for e in rewrite.slice.endpoints or ()}
        if any(wanted.get((ports, key)) != e for key, e in old.items()) or not old:
            continue
        assert len(rewrite.endpoints) > len(old), "a slice was written for nothing"
