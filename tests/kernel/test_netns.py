import errno
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from clusterip.errors import BadInput
from clusterip.kernel import netns

pytestmark = pytest.mark.kernel


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"t{uuid.uuid4().hex[:8]}"
    yield chosen
    netns.delete(chosen)


def links() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def test_a_created_namespace_is_empty_and_we_stay_where_we_were(name: str) -> None:
    before = os.stat("/proc/thread-self/ns/net").st_ino
    netns.create(name)
    assert name in netns.names()
    assert os.stat("/proc/thread-self/ns/net").st_ino == before
    assert os.stat(netns.path(name)).st_ino != before
    with netns.inside(name):
        assert links() == {"lo"}
    assert os.stat("/proc/thread-self/ns/net").st_ino == before


def test_ip_netns_sees_ours_and_we_see_its(name: str) -> None:
    netns.create(name)
    assert name in subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["ip", "netns", "delete", name], check=True)
    assert name not in netns.names()
    subprocess.run(["ip", "netns", "add", name], check=True)
    with netns.inside(name):
        assert links() == {"lo"}


def test_a_name_is_not_given_twice(name: str) -> None:
    netns.create(name)
    with pytest.raises(netns.NamespaceFailed) as caught:
        netns.create(name)
    assert caught.value.errno == errno.EEXIST
    assert name in netns.names()


def test_a_socket_stays_in_the_namespace_where_it_was_opened(name: str) -> None:
    netns.create(name)
    with netns.inside(name):
        there = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with there, pytest.raises(OSError, match="unreachable"):
        there.connect(("127.0.0.1", 9))  # its lo is down


def test_deleting_what_is_not_there_is_no_error(name: str) -> None:
    netns.delete(name)


def test_deletion_ends_the_namespace_although_another_mount_namespace_copied_it(name: str) -> None:
    netns.create(name)
    inode = os.stat(netns.path(name)).st_ino
    other = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", "60"])
    try:
        while os.readlink(f"/proc/{other.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            assert other.poll() is None
        netns.delete(name)
        with open(f"/proc/{other.pid}/mountinfo") as table:
            assert f"net:[{inode}]" not in table.read()
    finally:
        other.kill()
        other.wait()


def test_entering_what_is_not_there_says_so() -> None:
    with (
        pytest.raises(netns.NamespaceFailed, match=r"network namespace nowhere-x: .*No such file"),
        netns.inside("nowhere-x"),
    ):
        pass


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "a\0b"])
def test_what_cannot_be_a_file_name_is_refused(bad: str) -> None:
    with pytest.raises(BadInput, match="not a name"):
        netns.create(bad)
