"""Every prefix of a change is safe, and a load heals whatever it finds."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, tables

from clusterip.dataplane.ebpf.compile import Piece, compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import Delta, Step, applied, delta, differences, load
from clusterip.dataplane.ebpf.layout import MAPS, Contents, family_of, read_frontend
from clusterip.dataplane.ebpf.outcomes import EMPTY, walk
from clusterip.dataplane.ebpf.program import shipped
from clusterip.services.route import Packet, Source
from clusterip.services.table import Backend, Entry, PortName
from clusterip.services.tracker import Change


def configs(pool: Pool) -> Config:
    return Config(pool.family, (pool.node_ip,))


def singly(found: Delta) -> Iterator[Step]:
    """One entry at a time, as the kernel does it."""
    for step in found.steps:
        for key, value in step.write.items():
            yield Step(step.map, write={key: value})
        for key in step.delete:
            yield Step(step.map, delete=(key,))


def clients(contents: Contents) -> list[Packet]:
    frontends = [read_frontend(key) for key in contents["services"]]
    return [Packet(source, "0.0.0.0", *f) for f in frontends for source in (Source.POD, Source.NODE)]


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_after_every_single_write_a_client_meets_the_old_backends_or_the_new(pool: Pool, data: st.DataObject) -> None:
    config = configs(pool)
    old, new = ({k: compile_entry(e, config) for k, e in data.draw(tables(pool)).items()} for _ in range(2))
    before = applied(EMPTY, load(list(old.values()), EMPTY).steps)
    after = applied(EMPTY, load(list(new.values()), EMPTY).steps)
    changes = [Change(old.get(key), new.get(key)) for key in old.keys() | new.keys()]
    contents = before
    for step in singly(delta(changes)):
        contents = applied(contents, [step])
        for packet in clients(before) + clients(after):
            assert walk(contents, packet) in (walk(before, packet), walk(after, packet))
    assert contents == after
    assert not differences(after, contents)


@given(data=st.data())
def test_a_load_gives_exactly_the_pieces_from_whatever_is_there(data: st.DataObject) -> None:
    pieces = [compile_entry(e, configs(V4)) for e in data.draw(tables(V4)).values()]
    wanted = applied(EMPTY, load(pieces, EMPTY).steps)
    shapes = shipped().maps
    seen: dict[str, dict[bytes, bytes]] = {}
    for name in MAPS:
        kept = {k: v for k, v in wanted[name].items() if data.draw(st.booleans())}
        key, value = (st.binary(min_size=n, max_size=n) for n in (shapes[name].key_size, shapes[name].value_size))
        seen[name] = {**kept, **data.draw(st.dictionaries(key, value, max_size=3))}
    found: Contents = seen  # type: ignore[assignment]  # its keys are MAPS
    assert applied(found, load(pieces, found).steps) == wanted
    assert not load(pieces, wanted).steps


def piece(entry: Entry) -> Piece:
    return compile_entry(entry, Config("IPv4", ("192.168.50.11",)))


WEB = Entry(
    PortName("default", "web", ""),
    "IPv4",
    "TCP",
    80,
    "10.96.0.10",
    cluster=(Backend("10.244.1.2", 80),),
    has_backends=True,
)


def test_a_change_of_nothing_is_empty() -> None:
    assert delta([Change(piece(WEB), piece(WEB))]) == Delta()


def test_a_frontend_that_moves_to_another_service_is_written_over_and_never_deleted() -> None:
    other = replace(WEB, name=PortName("default", "other", ""))
    found = delta([Change(piece(WEB), None), Change(None, piece(other))])
    assert not [step for step in found.steps if step.map == "services" and step.delete]


def test_another_backend_is_two_writes_and_one_deletion() -> None:
    other = replace(WEB, cluster=(Backend("10.244.1.3", 80),))
    kinds = [(s.map, len(s.write), len(s.delete)) for s in delta([Change(piece(WEB), piece(other))]).steps]
    assert kinds == [("slots", 1, 0), ("services", 1, 0), ("slots", 0, 1)]


def test_what_refuses_needs_no_set() -> None:
    nobody = piece(replace(WEB, cluster=(), has_backends=False, node_port=30080))
    assert (len(nobody.services), nobody.slots, nobody.members) == (3, {}, {})


def test_members_are_kept_where_choices_are_remembered() -> None:
    assert not piece(WEB).members
    assert len(piece(replace(WEB, affinity_seconds=5)).members) == 1
    assert len(piece(replace(WEB, protocol="UDP")).members) == 1


def test_every_entry_tells_its_family() -> None:
    for pool, entry in ((V4, replace(WEB, protocol="UDP")),):
        for name, entries in piece(entry).contents.items():
            assert {family_of(name, k, v) for k, v in entries.items()} == {pool.family}
    six = replace(WEB, family="IPv6", protocol="UDP", cluster_ip="fd00:96::a", cluster=(Backend("fd00:1:1::2", 80),))
    for name, entries in compile_entry(six, Config("IPv6")).contents.items():
        assert {family_of(name, k, v) for k, v in entries.items()} == {"IPv6"}
