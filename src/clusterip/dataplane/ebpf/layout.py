"""The maps' keys and values as bytes: what bpf/socket.bpf.c calls struct frontend, service, slot, place, member. Pure.

Ports and addresses are in network order, everything else in the machine's; a little-endian one, as the program is.
"""

import ipaddress
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from clusterip.services.table import Backend, EntryKey, Family, Protocol

MapName: TypeAlias = Literal["services", "slots", "members"]
Entries: TypeAlias = Mapping[bytes, bytes]  # of one map
Contents: TypeAlias = Mapping[MapName, Entries]

MAPS: tuple[MapName, ...] = ("services", "slots", "members")
PROTOCOL_NUMBERS: Mapping[Protocol, int] = {"TCP": 6, "UDP": 17}
NODE_ONLY = 1  # flag of a service: for sockets in the node's own network namespace

_CONVERSATION = struct.Struct("!8s16sH6x")
_MAPPED = b"\0" * 10 + b"\xff\xff"
_FRONTEND = struct.Struct("!16sHBx")
_SERVICE = struct.Struct("<8s8sIII4x")
_SLOT = struct.Struct("<8sI4x")
_PLACE = struct.Struct("!16sH2x")
_MEMBER = struct.Struct("!8s16sH6x")


class Frontend(NamedTuple):
    address: str
    port: int
    protocol: Protocol


class Service(NamedTuple):
    """What a frontend leads to. `set` and `id` are eight bytes each; without `backends` it refuses."""

    set: bytes
    id: bytes
    backends: int
    affinity: int  # seconds; 0: none
    flags: int


def frontend_key(frontend: Frontend) -> bytes:
    return _FRONTEND.pack(_packed(frontend.address), frontend.port, PROTOCOL_NUMBERS[frontend.protocol])


def service_value(service: Service) -> bytes:
    return _SERVICE.pack(*service)


def slot_key(set_id: bytes, index: int) -> bytes:
    return _SLOT.pack(set_id, index)


def place_value(address: str, port: int) -> bytes:
    return packed_place(_packed(address), port)


def packed_place(address: bytes, port: int) -> bytes:
    """`address` as the maps have it: 16 bytes."""
    return _PLACE.pack(address, port)


def member_key(set_id: bytes, address: str, port: int) -> bytes:
    return _MEMBER.pack(set_id, _packed(address), port)


def read_frontend(key: bytes) -> Frontend:
    address, port, number = _FRONTEND.unpack(key)
    return Frontend(_text(address), port, "UDP" if number == PROTOCOL_NUMBERS["UDP"] else "TCP")


def read_service(value: bytes) -> Service:
    return Service(*_SERVICE.unpack(value))


def read_slot(key: bytes) -> tuple[bytes, int]:
    set_id, index = _SLOT.unpack(key)
    return set_id, index


def read_place(value: bytes) -> tuple[str, int]:
    address, port = _PLACE.unpack(value)
    return _text(address), port


def read_member(key: bytes) -> tuple[bytes, str, int]:
    set_id, address, port = _MEMBER.unpack(key)
    return set_id, _text(address), port


def conversation_key(cookie: int, address: bytes, port: int) -> bytes:
    """Names a socket and its remote end (16 bytes) in the program's own map `origins`."""
    return _CONVERSATION.pack(cookie.to_bytes(8, "little"), address, port)


def origin_id(value: bytes) -> bytes:
    """Of a value of `origins`: the id of the Service that the socket asked for."""
    return value[:8]


def service_id(key: EntryKey) -> bytes:
    """One for all frontends of a Service port in a family. Of 10,000 two are the same with a chance of 3 in 10^12."""
    return blake2b(str(key).encode(), digest_size=8).digest()


def set_id(key: EntryKey, backends: Sequence[Backend]) -> bytes:
    """Names these backends in this order. A set never changes: another set has another name, so a Service moves from
    one to the other by one write."""
    text = f"{key} {' '.join(f'{b.address}|{b.port}' for b in backends)}"
    return blake2b(text.encode(), digest_size=8).digest()


def family_of(name: MapName, key: bytes, value: bytes) -> Family:
    """Whose entry it is: both families live in the same maps."""
    match name:
        case "services":
            address = key[:16]
        case "slots":
            address = value[:16]
        case "members":
            address = key[8:24]
    return family_of_address(address)


def family_of_address(packed: bytes) -> Family:
    return "IPv4" if packed.startswith(_MAPPED) else "IPv6"


@lru_cache(maxsize=1 << 16)
def _packed(address: str) -> bytes:
    packed = ipaddress.ip_address(address).packed
    return packed if len(packed) == 16 else _MAPPED + packed


def _text(packed: bytes) -> str:
    if packed.startswith(_MAPPED):
        return str(ipaddress.IPv4Address(packed[12:]))
    return str(ipaddress.IPv6Address(packed))
