"""Control groups, version 2: where they are, and which processes are in them. A process's children are born in its own.

cgroup.procs and friends: kernel Documentation/admin-guide/cgroup-v2.rst.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clusterip.errors import ClusterIPError, Unavailable

_ROOT_INODE = 1  # of the machine's own root; the root that a container sees has another


class CgroupFailed(ClusterIPError):
    """The kernel refused."""


def mount_point() -> Path:
    """Where this mount namespace has cgroup2, beside version 1 or alone. Raises Unavailable."""
    with open("/proc/self/mounts") as table:
        for line in table:
            _, target, kind, *_ = line.split()
            if kind == "cgroup2":
                return Path(target.replace("\\040", " "))
    raise Unavailable("cgroup v2: not mounted here", hint="mount -t cgroup2 none /mnt")


def machine_root() -> Path:
    """The cgroup that holds every process. Raises Unavailable in a container that sees only its own part."""
    root = mount_point()
    if root.stat().st_ino != _ROOT_INODE:
        raise Unavailable(
            f"cgroup v2: {root} is not the machine's root but a container's own part of it",
            hint="mount the host's /sys/fs/cgroup into the container and name it",
        )
    return root


def by_inode(inode: int) -> Path | None:
    """None: this mount namespace does not show it. Raises Unavailable."""
    for folder, _, _ in os.walk(mount_point()):
        with suppress(FileNotFoundError):
            if os.stat(folder).st_ino == inode:
                return Path(folder)
    return None


def create(path: Path) -> None:
    """With its parents; no error if it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CgroupFailed(f"cgroup {path}: cannot be made: {error.strerror}") from error


def delete(path: Path) -> None:
    """With its children; no error if it is not there. Raises CgroupFailed while a process is in it."""
    try:
        for child in _tree(path):
            child.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CgroupFailed(f"cgroup {path}: cannot be removed: {error.strerror}") from error


def add(path: Path, pid: int) -> None:
    """Move a process there. Its children so far stay where they are."""
    try:
        (path / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise CgroupFailed(f"cgroup {path}: takes no process {pid}: {error.strerror}") from error


@contextmanager
def inside(path: Path) -> Iterator[None]:
    """This process is in it meanwhile: a socket that it opens belongs to that cgroup for good. Raises CgroupFailed."""
    before = _own()
    add(path, os.getpid())
    try:
        yield
    finally:
        with suppress(CgroupFailed):  # it may have been removed
            add(before, os.getpid())


def _own() -> Path:
    """Of this process."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    return mount_point() / path.lstrip("/")


def processes(path: Path) -> set[int]:
    """All in it and below; those of another pid namespace are not shown."""
    found: set[int] = set()
    for group in _tree(path):
        with suppress(FileNotFoundError):
            found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    return found - {0}


def _tree(path: Path) -> Iterator[Path]:
    """The cgroup and all below, each after its children."""
    for name in sorted(os.listdir(path)):
        if (path / name).is_dir():
            yield from _tree(path / name)
    yield path
