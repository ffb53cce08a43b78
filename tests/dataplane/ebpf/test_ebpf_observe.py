"""What of eBPF mode runs on a node, read by somebody else; and what clients see where it does not."""

import errno
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dataplane.ebpf.entries import MAPPED, VIP, everywhere
from tests.dataplane.ebpf.pods import Node, four, node

from clusterip.dataplane.ebpf.attach import HOOKS
from clusterip.dataplane.ebpf.observe import Seen, read
from clusterip.dataplane.ebpf.program import shipped
from clusterip.kernel import bpf, cgroup
from clusterip.kernel.bpf import Code

pytestmark = pytest.mark.kernel

NOTHING = bytes.fromhex("b700000001000000 9500000000000000")  # return 1
READS_SERVICES = bytes.fromhex("1801000000000000 0000000000000000") + NOTHING


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as made:
        yield made


def seen(lab: Node) -> Seen:
    found = read(lab.place.directory, lab.place.cgroup)
    assert found is not None
    return found


def code_of(hook: str) -> Code:
    return next(c for c in shipped().codes if c.name == hook)


def link_of(lab: Node, hook: str) -> Path:
    return lab.place.directory / "links" / hook


def unlinked(lab: Node, hook: str) -> None:
    link_of(lab, hook).unlink()


def put_in_its_place(lab: Node, hook: str, instructions: bytes, *maps: str) -> None:
    code = replace(code_of(hook), name="plain", instructions=instructions, maps=tuple(enumerate(maps)))
    link = bpf.pinned(link_of(lab, hook))
    assert link is not None
    with link, bpf.load(code, lab.sockets.maps) as other:
        bpf.replace(link, other)


def replaced(lab: Node, hook: str) -> None:
    put_in_its_place(lab, hook, NOTHING)


def moved(lab: Node, hook: str) -> None:
    """The same program, attached to a cgroup that is nobody's."""
    other = lab.place.cgroup / "inner"
    cgroup.create(other)
    link_of(lab, hook).unlink()
    with bpf.load(code_of(hook), lab.sockets.maps) as program, bpf.attach(program, other, code_of(hook).hook) as link:
        bpf.pin(link, link_of(lab, hook))


def test_what_is_attached_as_it_should_be_runs(lab: Node) -> None:
    assert seen(lab)[1:] == (tuple(sorted(HOOKS)), str(lab.place.cgroup), ())
    by_links = read(lab.place.directory)
    assert by_links == seen(lab)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_program_that_is_detached_is_missing_and_no_other(lab: Node, hook: str) -> None:
    unlinked(lab, hook)
    found = seen(lab)
    assert set(HOOKS) - set(found.hooks) == {hook}
    assert found.strays == ()


@pytest.mark.parametrize(
    ("damage", "strays"),
    [
        (Node.detach, []),
        (replaced, [("plain", "foreign", "")]),
        (moved, [("connect4", "elsewhere", "inner")]),
    ],
)
def test_a_link_that_is_pinned_proves_nothing(
    lab: Node, damage: Callable[[Node, str], None], strays: list[tuple[str, str, str]]
) -> None:
    damage(lab, "connect4")
    found = seen(lab)
    assert link_of(lab, "connect4").exists()
    assert "connect4" not in found.hooks
    assert [(s.program.partition(" ")[0], s.why, Path(s.cgroup).name) for s in found.strays] == strays


def test_a_program_is_found_though_nobody_has_pinned_its_link(lab: Node) -> None:
    link = bpf.pinned(link_of(lab, "connect4"))
    assert link is not None
    with link:
        unlinked(lab, "connect4")
        assert "connect4" in seen(lab).hooks


def test_one_that_reads_the_maps_and_is_another_is_told_and_runs(lab: Node) -> None:
    put_in_its_place(lab, "connect4", READS_SERVICES, "services")
    found = seen(lab)
    assert "connect4" in found.hooks
    assert [(s.hook, s.why) for s in found.strays] == [("connect4", "other-code")]


def test_one_whose_maps_are_not_those_that_are_pinned_is_told(lab: Node) -> None:
    (folder,) = lab.place.directory.glob("maps-*")
    (folder / "members").unlink()
    assert {(s.hook, s.why) for s in seen(lab).strays} == {
        (hook, "unread-maps") for hook in HOOKS if hook.startswith(("connect", "sendmsg"))
    }


def test_somebody_elses_beside_it_is_told(lab: Node) -> None:
    plain = replace(code_of("recvmsg6"), name="plain", instructions=NOTHING, maps=())
    with bpf.load(plain, {}) as program, bpf.attach(program, lab.place.cgroup, plain.hook):
        found = seen(lab)
    assert set(found.hooks) == set(HOOKS)
    assert [(s.hook, s.why, s.program.partition(" ")[0]) for s in found.strays] == [("recvmsg6", "foreign", "plain")]


def test_what_is_attached_above_the_cgroup_runs_in_it(lab: Node) -> None:
    inner = lab.place.cgroup / "inner"
    cgroup.create(inner)
    found = read(lab.place.directory, inner)
    assert found is not None
    assert (set(found.hooks), found.strays) == (set(HOOKS), ())


def test_in_a_cgroup_that_is_not_there_nothing_runs(lab: Node) -> None:
    found = read(lab.place.directory, lab.place.cgroup / "nothing")
    assert found is not None
    assert found.hooks == ()
    assert {(s.why, s.cgroup) for s in found.strays} == {("elsewhere", str(lab.place.cgroup))}


# --- what `verify` says that clients see without a program, seen by clients -------------------------------------------


def sender(lab: Node, family: int, address: str) -> str:
    """Of the answer to a datagram of a socket that is not connected."""
    with lab.open("client", family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.5)
        asking.sendto(b"?", (address, 80))
        return str(asking.recvfrom(16)[1][0]).removeprefix("::ffff:")


@pytest.mark.parametrize(("hook", "family", "address"), [("recvmsg4", 2, VIP), ("recvmsg6", 10, MAPPED)])
async def test_without_recvmsg_the_backend_is_the_sender(lab: Node, hook: str, family: int, address: str) -> None:
    await lab.serve(*everywhere(("b1",)))
    assert sender(lab, family, address) == VIP
    lab.detach(hook)
    assert sender(lab, family, address) == four("b1")


@pytest.mark.parametrize(("hook", "family", "address"), [("sendmsg4", 2, VIP), ("sendmsg4", 10, MAPPED)])
async def test_without_sendmsg4_a_datagram_is_left_to_the_rules_also_of_a_socket_of_ipv6(
    lab: Node, hook: str, family: int, address: str
) -> None:
    await lab.serve(*everywhere(("b1",)))
    lab.detach("sendmsg6")
    assert sender(lab, family, address) == VIP
    lab.detach(hook)
    with pytest.raises(OSError, match=r"timed out|Network is unreachable|No route"):
        sender(lab, family, address)


@pytest.mark.parametrize(("hook", "family", "address"), [("connect4", 2, VIP), ("connect6", 10, MAPPED)])
async def test_without_connect_a_connection_is_left_to_the_rules(
    lab: Node, hook: str, family: int, address: str
) -> None:
    await lab.serve(*everywhere(("b1",)))
    lab.detach(hook)
    with lab.open("client", family) as asking:
        asking.settimeout(0.5)
        assert asking.connect_ex((address, 80)) in (errno.EAGAIN, errno.ENETUNREACH, errno.EHOSTUNREACH)


async def test_without_getpeername_the_backend_is_named(lab: Node) -> None:
    await lab.serve(*everywhere(("b1",)))
    with lab.open("client") as asking:
        asking.connect((VIP, 80))
        assert asking.getpeername()[0] == VIP
        lab.detach("getpeername4")
        assert asking.getpeername()[0] == four("b1")
        assert asking.recv(16) == b"b1"
