"""mount(2) and umount2(2) for the few ways we use them. Paths are followed through symbolic links."""

import ctypes
import errno
import os

from clusterip.errors import ClusterIPError

# include/uapi/linux/mount.h
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SHARED = 1 << 20
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


class MountFailed(ClusterIPError):
    """The kernel refused; `errno` says why."""

    def __init__(self, target: str, code: int) -> None:
        super().__init__(f"mount on {target}: {os.strerror(code)}")
        self.errno = code


def bind(source: str, target: str, *, recursive: bool = False) -> None:
    """Let `target`, which must exist, show what `source` is."""
    _mount(source, target, MS_BIND | (MS_REC if recursive else 0))


def file_system(kind: str, target: str) -> None:
    """Mount a fresh one of this kind ("bpf") that needs no device."""
    _mount(kind, target, 0, kind)


def kind_of(target: str) -> str:
    """The kind of file system that is mounted at `target` itself, "" if none is."""
    kind = ""
    with open("/proc/self/mounts") as table:
        for line in table:
            _, where, found, *_ = line.split()
            if where.replace("\\040", " ") == target:
                kind = found  # the last one covers those before it
    return kind


def share(target: str) -> None:
    """What is mounted below `target` from now on is seen in mount namespaces copied from this one, and back."""
    _mount("none", target, MS_SHARED | MS_REC)


def unmount(target: str) -> None:
    """Undo the last mount on `target`, in use or not; no error if nothing is mounted there."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOENT):
            raise MountFailed(target, code)


def _mount(source: str, target: str, flags: int, kind: str = "none") -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None) != 0:
        raise MountFailed(target, ctypes.get_errno())
