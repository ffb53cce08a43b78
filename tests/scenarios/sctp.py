"""SCTP without a kernel that speaks it: the first packet of an association by a raw socket, and the answer to it.

Source: RFC 9260, 3.3.2 (INIT), 3.3.3 (INIT ACK) and appendix A (the checksum, CRC32c).
"""

import random
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

from tests.scenarios.members import MEMBERS, family_of
from tests.scenarios.world import World

from clusterip.services.notation import Destination

PROTOCOL = 132
_INIT, _INIT_ACK = 1, 2


def _table() -> Iterator[int]:
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


_TABLE = tuple(_table())


def checksum(packet: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in packet:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def packet(source: int, destination: int, kind: int, to_tag: int, own_tag: int) -> bytes:
    """An INIT or INIT ACK without parameters: enough for connection tracking."""
    chunk = struct.pack("!BBHIIHHI", kind, 0, 20, own_tag, 65536, 10, 10, 1)
    header = struct.pack("!HHI", source, destination, to_tag)
    return header + struct.pack("<I", checksum(header + bytes(4) + chunk)) + chunk


def ask(world: World, client: str, to: Destination, patience: float) -> tuple[str, int, str] | str:
    """Name, port and client's address as the member saw it that got the first packet and whose answer came back; or
    "refused", or "dropped" after `patience` seconds."""
    family = family_of(to.address)
    own_tag, own_port = random.getrandbits(32) | 1, random.randint(40000, 60000)
    with ExitStack() as stack:
        ears = {stack.enter_context(world.socket(m, family, socket.SOCK_RAW, PROTOCOL)): m for m in MEMBERS}
        asking = stack.enter_context(world.socket(client, family, socket.SOCK_RAW, PROTOCOL))
        asking.connect((to.address, 0))
        asking.send(packet(own_port, to.port, _INIT, 0, own_tag))
        found: tuple[str, int, str] | str = "dropped"
        while ready := select.select([asking, *ears], [], [], patience)[0]:
            for end in ready:
                try:
                    said, peer = end.recvfrom(2000)
                except ConnectionRefusedError:
                    return "refused"
                said = said[(said[0] & 15) * 4 :] if family == "IPv4" else said
                source, port, to_tag = struct.unpack_from("!HHI", said)
                kind, tag = said[12], struct.unpack_from("!I", said, 16)[0]
                if end is asking and kind == _INIT_ACK and to_tag == own_tag:
                    return found
                if end is not asking and kind == _INIT and tag == own_tag:
                    found = (ears[end], port, peer[0])
                    end.sendto(packet(port, source, _INIT_ACK, own_tag, own_tag ^ 2), (peer[0], 0))
        return "dropped"
