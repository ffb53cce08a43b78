"""What survives the process, and what a new version does to it."""

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dataplane.ebpf.entries import VIP, VIP6, entry, everywhere
from tests.dataplane.ebpf.pods import CONFIGS, Node, node

from clusterip.dataplane.ebpf.apply import SocketMaps
from clusterip.dataplane.ebpf.attach import HOOKS, Place, Sockets, remove
from clusterip.dataplane.ebpf.check import check
from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.delta import load
from clusterip.dataplane.ebpf.observe import read
from clusterip.dataplane.ebpf.program import Program, shipped
from clusterip.errors import Unavailable
from clusterip.kernel import bpf, mounts, netns

pytestmark = pytest.mark.kernel


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as made:
        yield made


def start_again(lab: Node, program: Program) -> None:
    lab.sockets.close()
    lab.sockets = Sockets(lab.place, program, netns.cookie(lab.namespace("node")))


async def forgotten(lab: Node) -> bool:
    """Nothing but our programs knows the address. The kernel may take a moment to let go of a link."""
    for _ in range(20):
        with lab.open("client") as asking:
            asking.settimeout(0.2)
            try:
                asking.connect((VIP, 80))
            except OSError:
                return True
        await asyncio.sleep(0.05)
    return False


async def test_everything_goes_on_without_a_process(lab: Node) -> None:
    await lab.serve(*everywhere())
    with lab.open("client", kind=socket.SOCK_DGRAM) as asking:
        asking.connect((VIP, 80))
        lab.sockets.close()
        assert lab.ask(VIP, 80) in ("b1", "b2")
        assert lab.ask(VIP6, 80, kind=socket.SOCK_DGRAM) in ("b1", "b2")
        assert asking.getpeername() == (VIP, 80)


async def test_a_new_process_finds_the_maps_as_they_were_and_has_nothing_to_write(lab: Node) -> None:
    await lab.serve(*everywhere())
    start_again(lab, shipped().smaller(4096))
    for family, config in CONFIGS.items():
        seen = await SocketMaps(lab.sockets, family).observe()
        pieces = [compile_entry(e, config) for e in everywhere() if e.family == family]
        assert not load(pieces, seen).steps
        assert len(seen["services"]) == 2


async def test_the_maps_are_read_by_others_without_being_touched(lab: Node) -> None:
    await lab.serve(*everywhere())
    found = read(lab.place.directory)
    assert found is not None
    assert found.families == {family: lab.sockets.contents(family) for family in CONFIGS}
    assert len(found.families["IPv6"]["services"]) == 2
    assert set(found.hooks) == set(HOOKS)
    assert read(lab.place.directory / "nothing") is None
    (lab.place.directory / "links" / "connect4").unlink()
    taken = read(lab.place.directory)
    assert taken is not None
    assert set(taken.hooks) == {*HOOKS} - {"connect4"}


async def test_programs_are_replaced_while_clients_connect(lab: Node) -> None:
    await lab.serve(*everywhere())
    failures: list[str] = []
    done = threading.Event()

    def connect() -> None:
        while not done.is_set():
            try:
                lab.ask(VIP, 80)
            except OSError as error:
                failures.append(repr(error))

    client = threading.Thread(target=connect)
    client.start()
    try:
        for size in (4096, 4096, 2048, 4096):  # another size is another layout: new maps
            start_again(lab, shipped().smaller(size))
            await lab.serve(*everywhere())
            lab.sockets.attach()
            assert not lab.sockets.damage()
    finally:
        done.set()
        client.join()
    assert not failures
    assert [p.name for p in lab.place.directory.glob("maps-*")] == [f"maps-{shipped().smaller(4096).layout}"]


async def test_a_link_that_others_took_away_is_put_back(lab: Node) -> None:
    await lab.serve(*everywhere())
    (lab.place.directory / "links" / "connect4").unlink()
    assert lab.sockets.damage()
    assert await forgotten(lab)
    lab.sockets.attach()
    assert lab.ask(VIP, 80) in ("b1", "b2")


async def test_removal_leaves_nothing_and_connections_stay(lab: Node) -> None:
    await lab.serve(*everywhere())
    with lab.open("client") as asking:
        asking.connect((VIP, 80))
        lab.sockets.close()
        assert remove(lab.place.directory)
        assert asking.recv(16) in (b"b1", b"b2")
    assert mounts.kind_of(str(lab.place.directory)) == ""
    assert not remove(lab.place.directory)
    assert await forgotten(lab)


async def test_backends_change_under_load_and_no_connection_is_lost(lab: Node) -> None:
    """As fast as the maps can be written, while two clients connect as fast as they can."""
    both, *single = (entry(pods=p) for p in (("b1", "b2"), ("b1",), ("b2",)))
    await lab.serve(both)
    failures: list[str] = []
    connections = [0, 0]
    done = threading.Event()

    def connect(number: int) -> None:
        while not done.is_set():
            connections[number] += 1
            try:
                lab.ask(VIP, 80)
            except OSError as error:
                failures.append(repr(error))

    clients = [threading.Thread(target=connect, args=(n,)) for n in range(2)]
    for client in clients:
        client.start()
    try:
        for turn in range(500):
            await lab.change(both, single[turn % 2])
            await lab.change(single[turn % 2], both)
    finally:
        done.set()
        for client in clients:
            client.join()
    assert not failures
    assert min(connections) > 0


def test_a_program_that_holds_a_hook_alone_is_named(lab: Node) -> None:
    """As old tools attach: by BPF_PROG_ATTACH without flags, exclusively."""
    lab.sockets.close()
    remove(lab.place.directory)
    code = next(c for c in shipped().codes if c.name == "getpeername4")
    plain = replace(code, instructions=bytes.fromhex("b700000001000000 9500000000000000"), maps=())  # return 1
    directory = os.open(lab.place.cgroup, os.O_RDONLY)
    attributes = (directory, bpf.load(plain, {}).fd, bpf.ATTACH_TYPES[code.hook], 0)
    bpf._call(8, struct.pack("<4I", *attributes), "attach alone")
    os.close(directory)
    with pytest.raises(Unavailable, match="another program holds the hook for itself alone"):
        check(lab.place, shipped())


async def test_the_check_passes_here_and_touches_nothing(lab: Node) -> None:
    await lab.serve(entry())
    check(lab.place, shipped())
    assert lab.ask(VIP, 80) in ("b1", "b2")
    assert not lab.sockets.damage()


def test_the_check_names_what_is_missing(lab: Node, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is no cgroup of version 2"):
        check(Place(tmp_path, tmp_path), shipped())
    helper = bytes.fromhex("85000000ff7f0000 9500000000000000")  # call one that no kernel has; exit
    newer = replace(shipped().codes[0], instructions=helper, maps=())
    with pytest.raises(Unavailable, match=r"does not take the program, 5\.18 and later do"):
        check(lab.place, replace(shipped(), codes=(newer,)))
