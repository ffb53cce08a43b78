import errno
import os
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterip.errors import Unavailable
from clusterip.kernel import bpf, cgroup, mounts, netns, sockdestroy
from clusterip.kernel.bpf import BpfRefused, Code, MapShape

pytestmark = pytest.mark.kernel

HASH = MapShape(1, 4, 8, 10_000, 1)


def numbers(count: int) -> dict[bytes, bytes]:
    return {struct.pack("<I", n): struct.pack("<Q", n * n) for n in range(count)}


def code(result: int) -> Code:
    """r0 = result; exit."""
    instructions = struct.pack("<BBhi", 0xB7, 0, 0, result) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    return Code("tiny", "cgroup/connect4", instructions, (), "Apache-2.0")


@pytest.fixture
def group() -> Iterator[Path]:
    path = cgroup.mount_point() / f"clusterip-test-{uuid.uuid4().hex[:8]}" / "inner"
    cgroup.create(path)
    yield path
    cgroup.delete(path.parent)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "bpf"
    target.mkdir()
    mounts.file_system("bpf", str(target))
    yield target
    mounts.unmount(str(target))


def test_what_is_written_in_batches_is_read_back_whole() -> None:
    with bpf.create_map("test", HASH) as opened:
        opened.put(numbers(9000))
        assert dict(opened.items()) == numbers(9000)
        assert opened.get(struct.pack("<I", 12)) == struct.pack("<Q", 144)
        assert opened.get(struct.pack("<I", 9000)) is None


class Scarce(bpf.Map):
    """Has memory for three entries in a row, as a kernel that fills its store up late; `ever`: for one more row."""

    def __init__(self, *, ever: bool) -> None:
        super().__init__(-1, "scarce", HASH)
        self.ever, self.has, self.written = ever, 3, b""

    def _batch(self, command: int, keys: bytes, values: bytes, count: int) -> tuple[int, int]:
        done, self.has = min(self.has, count), 3 if self.ever and not self.has else 0
        self.written += keys[: 4 * done]
        return (0 if done == count else errno.ENOMEM), done


def test_a_write_waits_for_memory_that_comes_late_and_loses_no_entry() -> None:
    late = Scarce(ever=True)
    late.put(numbers(20))
    assert late.written == b"".join(numbers(20))


def test_a_write_that_never_gets_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpf, "_PATIENCE", 3)
    with pytest.raises(BpfRefused, match="ENOMEM"):
        Scarce(ever=False).put(numbers(4))


def test_deletion_passes_over_what_is_not_there() -> None:
    with bpf.create_map("test", HASH) as opened:
        opened.put(numbers(6000))
        opened.delete([struct.pack("<I", n) for n in (*range(100, 9000), *range(100, 200))])
        assert dict(opened.items()) == numbers(100)


def test_a_full_map_says_how_much_it_holds() -> None:
    with bpf.create_map("test", MapShape(1, 4, 8, 10)) as opened, pytest.raises(BpfRefused) as caught:
        opened.put(numbers(11))
    assert caught.value.errno == errno.E2BIG
    assert "at most 10" in caught.value.hint


def test_a_pinned_map_is_found_again_with_its_shape(files: Path) -> None:
    with bpf.create_map("test", HASH) as first:
        first.put(numbers(3))
        bpf.pin(first, files / "kept")
    found = bpf.pinned_map(files / "kept", "test")
    assert found is not None
    with found:
        assert found.shape == HASH
        assert dict(found.items()) == numbers(3)
    assert bpf.pinned(files / "other") is None


def test_the_verifiers_last_word_is_told() -> None:
    bad = Code("bad", "cgroup/connect4", struct.pack("<BBhi", 0x95, 0, 0, 0), (), "Apache-2.0")
    with pytest.raises(BpfRefused) as caught:
        bpf.load(bad, {})
    assert "R0" in caught.value.hint


def test_a_link_runs_its_program_until_it_is_closed_and_can_be_given_another(group: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    home = cgroup.mount_point() / Path("/proc/self/cgroup").read_text().split("0::/", 1)[1].split("\n")[0]

    def connects() -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(listener.getsockname()) == 0

    cgroup.add(group, os.getpid())
    try:
        with listener, bpf.load(code(0), {}) as refuses, bpf.load(code(1), {}) as allows:
            assert connects()
            with bpf.attach(refuses, group.parent, "cgroup/connect4") as link:
                assert bpf.attachment(link).cgroup == group.parent.stat().st_ino
                assert not connects()
                bpf.replace(link, allows)
                assert connects()
                bpf.replace(link, refuses)
                assert not connects()
            assert connects()
    finally:
        cgroup.add(home, os.getpid())


def test_processes_of_a_cgroup_are_those_below_it_too(group: Path) -> None:
    assert cgroup.processes(group.parent) == set()
    home = cgroup.mount_point() / Path("/proc/self/cgroup").read_text().split("0::/", 1)[1].split("\n")[0]
    cgroup.add(group, os.getpid())
    try:
        assert cgroup.processes(group.parent) == {os.getpid()}
        with pytest.raises(cgroup.CgroupFailed, match="cannot be removed"):
            cgroup.delete(group)
    finally:
        cgroup.add(home, os.getpid())
    cgroup.delete(group)
    cgroup.delete(group)


def test_a_containers_root_is_not_taken_for_the_machines(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cgroup.machine_root() == cgroup.mount_point()
    monkeypatch.setattr(cgroup, "mount_point", lambda: group)
    with pytest.raises(Unavailable, match="container's own part"):
        cgroup.machine_root()


def test_cookies_tell_namespaces_apart() -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    netns.create(name)
    try:
        assert netns.cookie(name) == netns.cookie(name) != netns.cookie()
        with netns.inside_process(os.getpid()):
            assert netns.cookie() != netns.cookie(name)
    finally:
        netns.delete(name)


def test_a_socket_is_ended_and_its_owner_told() -> None:
    assert sockdestroy.can_destroy()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for sock, port in ((ours, 40_001), (other, 40_002)):
            sock.settimeout(5)
            sock.connect(("127.0.0.1", port))
        mine = int.from_bytes(ours.getsockopt(socket.SOL_SOCKET, 57, 8), "little")  # SO_COOKIE
        found = [s for s in sockdestroy.connected("UDP") if s.cookie == mine]
        assert [(s.address[-4:], s.port) for s in found] == [(b"\x7f\0\0\1", 40_001)]
        assert sockdestroy.destroy("UDP", found) == 1
        assert sockdestroy.destroy("UDP", found) == 0
        with pytest.raises(ConnectionAbortedError):
            ours.recv(1)
        assert other.getpeername() == ("127.0.0.1", 40_002)
