"""Named network namespaces, where `ip netns` keeps them: a bind mount of each below /run/netns.

All calls are synchronous and take well under a millisecond, except that the kernel may need some to build a
namespace. They concern the calling thread alone. Everything here needs root.
"""

import ctypes
import errno
import fcntl
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from clusterip.errors import BadInput, ClusterIPError
from clusterip.kernel import mounts

DIRECTORY = Path("/run/netns")
CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_SO_NETNS_COOKIE = 71  # include/uapi/asm-generic/socket.h

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceFailed(ClusterIPError):
    """The kernel refused; `errno` says why."""

    def __init__(self, name: str, what: str, code: int) -> None:
        super().__init__(f"network namespace {name}: {what}: {os.strerror(code)}", hint="this needs root")
        self.errno = code


def path(name: str) -> Path:
    """Where the namespace is mounted, there or not. Raises BadInput for what cannot be a file's name."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise BadInput(f"network namespace {name!r}: not a name")
    return DIRECTORY / name


def names() -> tuple[str, ...]:
    """All named namespaces, ours or not, sorted."""
    try:
        return tuple(sorted(os.listdir(DIRECTORY)))
    except FileNotFoundError:
        return ()


def create(name: str) -> None:
    """Make the namespace; its `lo` is still down. Raises NamespaceFailed with EEXIST if there is one of that name."""
    target = path(name)
    _share_directory()
    try:
        os.close(os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
    except FileExistsError as error:
        raise NamespaceFailed(name, "cannot be created", errno.EEXIST) from error
    try:
        with _coming_back(name):
            _check(_libc.unshare(CLONE_NEWNET), name, "cannot be created")
            mounts.bind("/proc/thread-self/ns/net", str(target))
    except BaseException:
        target.unlink()
        raise


def delete(name: str) -> None:
    """Take the name away; no error if there is none. The kernel ends the namespace, its links and rules, with the
    last process in it."""
    target = path(name)
    mounts.unmount(str(target))
    # Removing the file also detaches the copies of this mount in other mount namespaces, which would keep it alive.
    with suppress(FileNotFoundError):
        target.unlink()


def enter(name: str) -> None:
    """Move the calling thread there, for good. Threads and processes it starts from now on are born there."""
    with _opened(path(name), name) as fd:
        _check(_libc.setns(fd, CLONE_NEWNET), name, "cannot be entered")


@contextmanager
def inside(name: str) -> Iterator[None]:
    """The calling thread is there until the block ends: sockets opened in it stay there. No `await` in the block."""
    with _coming_back(name):
        enter(name)
        yield


@contextmanager
def inside_process(pid: int) -> Iterator[None]:
    """As `inside`, where that process is. Raises NamespaceFailed if it has ended."""
    name = f"of process {pid}"
    with _coming_back(name), _opened(Path(f"/proc/{pid}/ns/net"), name) as fd:
        _check(_libc.setns(fd, CLONE_NEWNET), name, "cannot be entered")
        yield


def inode(pid: int) -> int:
    """Tells apart the namespaces that processes are in. Raises NamespaceFailed if the process has ended."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError as error:
        raise NamespaceFailed(f"of process {pid}", "cannot be seen", error.errno or 0) from error


def cookie(name: str = "") -> int:
    """The kernel's number for the namespace, "" for ours; no two have the same while the machine runs."""
    with inside(name) if name else nullcontext(), socket.socket() as any_socket:
        return int.from_bytes(any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)


@contextmanager
def _coming_back(name: str) -> Iterator[None]:
    with _opened(Path("/proc/thread-self/ns/net"), name) as home:
        try:
            yield
        finally:
            _check(_libc.setns(home, CLONE_NEWNET), name, "cannot be left")


@contextmanager
def _opened(file: Path, name: str) -> Iterator[int]:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceFailed(name, f"{file} cannot be opened", error.errno or 0) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _share_directory() -> None:
    """As `ip netns add` does: names made in one mount namespace appear, and disappear, in the others."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with _opened(DIRECTORY, "all") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two that bind at once would double the mounts, at each level; `ip` locks too
        try:
            mounts.share(str(DIRECTORY))
        except mounts.MountFailed as error:
            # EINVAL: not a mount yet, and only a mount can be shared. (os.path.ismount does not see a bind mount of
            # one file system on itself.)
            if error.errno != errno.EINVAL:
                raise
            mounts.bind(str(DIRECTORY), str(DIRECTORY), recursive=True)
            mounts.share(str(DIRECTORY))


def _check(result: int, name: str, what: str) -> None:
    if result != 0:
        raise NamespaceFailed(name, what, ctypes.get_errno())
