"""Connection tracking: the kernel's entries as values, and deleting some of them. Blocking; see `netlink`.

Source: kernel include/uapi/linux/netfilter/nfnetlink_conntrack.h.
"""

import errno
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clusterip.kernel.netlink import Message, Netlink, attribute, attributes, nested, netfilter
from clusterip.services.table import PROTOCOL_NUMBERS, Family, Protocol

_SUBSYSTEM, _GET, _DELETE = 1, 1, 2
_TUPLE_ORIG, _TUPLE_REPLY, _STATUS, _PROTOINFO, _TIMEOUT, _MARK, _ID, _ZONE, _FILTER = 1, 2, 3, 4, 7, 8, 12, 18, 25
_TUPLE_IP, _TUPLE_PROTO, _TUPLE_ZONE = 1, 2, 3
_V4_SOURCE, _V4_DESTINATION, _V6_SOURCE, _V6_DESTINATION = 1, 2, 3, 4
_PROTO_NUMBER, _PROTO_SOURCE, _PROTO_DESTINATION = 1, 2, 3
_FILTER_ORIG_FLAGS, _FILTER_PROTO_NUMBER = 1, 1 << 3
_PROTOINFO_TCP, _TCP_STATE = 1, 1
_FAMILIES: dict[Family, int] = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
_TRIES = 3  # dumps, while the table changes under them
_U16, _U32 = struct.Struct("!H"), struct.Struct("!I")

SEEN_REPLY, ASSURED, SOURCE_NAT, DESTINATION_NAT = 1 << 1, 1 << 2, 1 << 4, 1 << 5  # bits of Entry.status


class Tuple(NamedTuple):
    """One direction of a flow. Addresses are canonical text."""

    source: str
    source_port: int
    destination: str
    destination_port: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One tracked flow. `original` is what the client sent; `reply` is what comes back: after destination NAT its
    source is the backend."""

    family: Family
    protocol: int  # number of the IP protocol
    original: Tuple
    reply: Tuple
    status: int
    timeout: int  # seconds left
    mark: int
    tcp_state: int | None
    key: bytes  # what names it to the kernel: its attributes, to send back for a deletion


@dataclass(frozen=True, slots=True)
class Dump:
    entries: tuple[Entry, ...]
    whole: bool  # False: entries came and went meanwhile, some may be missing


def dump(family: Family, protocol: Protocol | None = None, netns: str = "") -> Dump:
    """The entries of one family, of one protocol if given.

    The kernel is asked to leave out other protocols (since 5.8; older ones ignore it), and what it sends is checked.
    """
    number = PROTOCOL_NUMBERS[protocol] if protocol else 0
    wanted = b""
    if protocol:
        wanted = nested(_TUPLE_ORIG, nested(_TUPLE_PROTO, attribute(_PROTO_NUMBER, bytes([number])))) + nested(
            _FILTER, attribute(_FILTER_ORIG_FLAGS, struct.pack("=I", _FILTER_PROTO_NUMBER))
        )
    with Netlink(netns) as link:
        bodies, whole = link.dump(
            netfilter(_SUBSYSTEM, _GET, _FAMILIES[family], wanted), f"conntrack: list {family} entries"
        )
    parsed = (_entry(family, body) for body in bodies)
    return Dump(tuple(e for e in parsed if e is not None and (not number or e.protocol == number)), whole)


def entries(family: Family, protocol: Protocol | None = None, netns: str = "") -> tuple[Entry, ...]:
    """As `dump`, asked again while the table changes under it; the last answer is taken as it is."""
    for _ in range(_TRIES - 1):
        found = dump(family, protocol, netns)
        if found.whole:
            return found.entries
    return dump(family, protocol, netns).entries


def delete(entries: Iterable[Entry], netns: str = "") -> int:
    """Remove these; how many were still there. One that has gone, or has been replaced by another flow, is no error."""
    with Netlink(netns) as link:
        results = link.tell(_deletion(e) for e in entries)
    return sum(1 for number in results if number != errno.ENOENT and not number)


def _deletion(entry: Entry) -> Message:
    return netfilter(_SUBSYSTEM, _DELETE, _FAMILIES[entry.family], entry.key)


def _entry(family: Family, body: bytes) -> Entry | None:
    found = attributes(body, 4)
    if _TUPLE_ORIG not in found or _TUPLE_REPLY not in found:
        return None
    protocol, original = _tuple(found[_TUPLE_ORIG])
    _, reply = _tuple(found[_TUPLE_REPLY])
    key = b"".join(
        attribute(kind | (0x8000 if kind == _TUPLE_ORIG else 0), found[kind])
        for kind in (_TUPLE_ORIG, _ZONE, _ID)
        if kind in found
    )
    return Entry(
        family=family,
        protocol=protocol,
        original=original,
        reply=reply,
        status=_number(found.get(_STATUS)),
        timeout=_number(found.get(_TIMEOUT)),
        mark=_number(found.get(_MARK)),
        tcp_state=_tcp_state(found.get(_PROTOINFO)),
        key=key,
    )


def _number(payload: bytes | None) -> int:
    return int.from_bytes(payload or b"", "big")


def _tcp_state(info: bytes | None) -> int | None:
    state = attributes(attributes(info or b"").get(_PROTOINFO_TCP, b"")).get(_TCP_STATE)
    return state[0] if state else None


def _tuple(payload: bytes) -> tuple[int, Tuple]:
    """The protocol's number and the addresses. ICMP has no ports: both are 0."""
    parts = attributes(payload)
    addresses, proto = attributes(parts.get(_TUPLE_IP, b"")), attributes(parts.get(_TUPLE_PROTO, b""))
    source = addresses.get(_V4_SOURCE) or addresses.get(_V6_SOURCE, b"")
    destination = addresses.get(_V4_DESTINATION) or addresses.get(_V6_DESTINATION, b"")
    return _number(proto.get(_PROTO_NUMBER)), Tuple(
        _text(source), _number(proto.get(_PROTO_SOURCE)), _text(destination), _number(proto.get(_PROTO_DESTINATION))
    )


def _text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address) if address else ""
