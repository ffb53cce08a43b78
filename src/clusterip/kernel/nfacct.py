"""Named packet counters of netfilter (nfnetlink_acct), which a rule's `-m nfacct` match counts into. Blocking.

Source: kernel include/uapi/linux/netfilter/nfnetlink_acct.h.
"""

import errno
import struct
from dataclasses import dataclass

from clusterip.kernel.netlink import CREATE, EXCLUSIVE, Netlink, NetlinkRefused, attribute, attributes, netfilter

_SUBSYSTEM, _NEW, _GET = 7, 0, 1
_NAME, _PACKETS, _BYTES = 1, 2, 3
# What a kernel answers that has no such subsystem, or no such counter.
_ABSENT = (errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class Counter:
    packets: int
    bytes: int


def ensure(name: str, netns: str = "") -> bool:
    """Make the counter unless it exists. False: this kernel has no such counters, so no rule may name one."""
    request = netfilter(_SUBSYSTEM, _NEW, 0, _named(name), CREATE | EXCLUSIVE)
    with Netlink(netns) as link:
        [number] = link.tell([request])
    if number in (0, errno.EEXIST):
        return True
    if number in _ABSENT:
        return False
    raise NetlinkRefused(f"nfacct: counter {name}", number)


def read(name: str, netns: str = "") -> Counter | None:
    """Its count since it was made; None if there is no such counter or the kernel has none at all."""
    with Netlink(netns) as link:
        try:
            body = link.ask(netfilter(_SUBSYSTEM, _GET, 0, _named(name)), f"nfacct: counter {name}")
        except NetlinkRefused as error:
            if error.errno in _ABSENT:
                return None
            raise
    found = attributes(body, 4)
    zero = struct.pack("!Q", 0)
    return Counter(
        packets=int.from_bytes(found.get(_PACKETS, zero), "big"), bytes=int.from_bytes(found.get(_BYTES, zero), "big")
    )


def _named(name: str) -> bytes:
    return attribute(_NAME, name.encode() + b"\0")
