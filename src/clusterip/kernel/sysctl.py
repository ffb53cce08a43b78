"""Kernel settings under /proc/sys, named as sysctl(8) names them: `net.ipv4.conf.all.route_localnet`."""

import errno
from pathlib import Path

from clusterip.errors import ClusterIPError
from clusterip.kernel.netlink import inside

_HASH_SIZE = Path("/sys/module/nf_conntrack/parameters/hashsize")
# How a kernel says that a setting belongs to the machine and not to this network namespace or container.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP, errno.ENOENT)


class SettingRefused(ClusterIPError):
    """`not_ours`: it is absent or read-only here, as machine-wide settings are in a namespace or container."""

    def __init__(self, name: str, value: str, error: OSError) -> None:
        super().__init__(
            f"kernel setting {name}: cannot be set to {value}: {error.strerror}",
            hint=f"as root of the machine: sysctl -w {name}={value}",
        )
        self.name = name
        self.not_ours = error.errno in _NOT_OURS


def read(name: str, netns: str = "") -> str | None:
    """Its value, or None if this kernel does not have it (the module may not be loaded) or does not show it to us."""
    with inside(netns):
        return _read(_path(name))


def ensure(name: str, value: str, netns: str = "") -> bool:
    """Write it only if it differs; True if it was written. Raises SettingRefused."""
    with inside(netns):
        return _ensure(name, _path(name), value)


def conntrack_hash_size() -> int:
    """Buckets of the connection table, which all namespaces share; 0 if the module is not loaded."""
    return int(_read(_HASH_SIZE) or 0)


def grow_conntrack_hash(size: int) -> bool:
    """Give the connection table at least `size` buckets; True if it was written. Raises SettingRefused."""
    if conntrack_hash_size() >= size:
        return False
    return _ensure(str(_HASH_SIZE), _HASH_SIZE, str(size))


def has_ipv6(netns: str = "") -> bool:
    """IPv6 is compiled in, loaded, and not switched off for all interfaces."""
    with inside(netns):
        # thread-self: /proc/net would show the namespace of the process's first thread.
        loaded = Path("/proc/thread-self/net/if_inet6").exists()
        return loaded and _read(_path("net.ipv6.conf.all.disable_ipv6")) != "1"


def _path(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, PermissionError):
        return None


def _ensure(name: str, path: Path, value: str) -> bool:
    if _read(path) == value:
        return False
    try:
        path.write_text(value)
    except OSError as error:
        raise SettingRefused(name, value, error) from error
    return True
