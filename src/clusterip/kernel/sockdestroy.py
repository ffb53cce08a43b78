"""Sockets of a network namespace as the kernel lists them, and ending some of them. Blocking; see `netlink`.

A process learns of it as of a broken connection: ECONNABORTED from what it waits in. Needs CONFIG_INET_DIAG_DESTROY.
Source: kernel include/uapi/linux/{sock_diag,inet_diag}.h.
"""

import errno
import socket
import struct
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

from clusterip.kernel.netlink import REQUEST, SOCK_DIAG, Message, Netlink, NetlinkRefused, inside
from clusterip.services.table import Protocol

_BY_FAMILY, _DESTROY = 20, 21
_REQUEST = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_ANY_STATE = 0xFFFFFFFF
_NUMBERS: dict[Protocol, int] = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP}
_GONE = (errno.ENOENT, errno.ESTALE)


class Socket(NamedTuple):
    """A socket with a remote end."""

    cookie: int  # the kernel's number for it, as BPF programs see it
    address: bytes  # remote, 16 bytes, IPv4 as ::ffff:a.b.c.d
    port: int
    family: int  # of the socket, not of the address
    key: bytes  # what names it to the kernel


def connected(protocol: Protocol) -> list[Socket]:
    """Those of the calling thread's namespace that have a remote end."""
    found = []
    with Netlink(protocol=SOCK_DIAG) as link:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, _NUMBERS[protocol], 0, _ANY_STATE) + bytes(48)
            bodies, _ = link.dump(Message(_BY_FAMILY, REQUEST, request), f"sockets: list {protocol}")
            found += [s for s in map(_socket, bodies) if s.port]
    return found


def destroy(protocol: Protocol, sockets: Iterable[Socket]) -> int:
    """End these, in the calling thread's namespace; how many were still there. Raises NetlinkRefused."""
    requests = [
        Message(_DESTROY, REQUEST, _REQUEST.pack(s.family, _NUMBERS[protocol], 0, _ANY_STATE) + s.key) for s in sockets
    ]
    with Netlink(protocol=SOCK_DIAG) as link:
        results = link.tell(requests)
    for number in results:
        if number and number not in _GONE:
            raise NetlinkRefused("sockets: end one", number)
    return results.count(0)


def can_destroy(netns: str = "") -> bool:
    """This kernel can list datagram sockets and end them: of one that is not there it says so, rather than that it does
    not know how."""
    nobody = struct.pack("!HH", 0, 1) + bytes(36) + b"\xff" * 8
    request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_UDP, 0, _ANY_STATE) + nobody
    place: AbstractContextManager[None] = inside(netns)
    with place, Netlink(protocol=SOCK_DIAG) as link:
        try:
            connected("UDP")
        except NetlinkRefused:
            return False  # no udp_diag, without which a socket that is there would not be found either
        return link.tell([Message(_DESTROY, REQUEST, request)])[0] in _GONE


def _socket(body: bytes) -> Socket:
    """struct inet_diag_msg: family, state, timer, retransmissions, then struct inet_diag_sockid of 48 bytes."""
    family, key = body[0], body[4:52]
    remote = key[20:36] if family == socket.AF_INET6 else b"\0" * 10 + b"\xff\xff" + key[20:24]
    return Socket(struct.unpack_from("=Q", key, 40)[0], remote, struct.unpack_from("!H", key, 2)[0], family, key)
