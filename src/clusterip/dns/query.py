"""A query as it comes over the wire, and the short replies that need no records. Pure.

Only the shape that resolvers send is read: one question, at most one additional record, which is EDNS. Everything else
gets an error or silence, so nothing further in has to be careful.
Source: RFC 1035 section 4, RFC 6891.
"""

import struct
from typing import NamedTuple

HEADER = struct.Struct("!HHHHHH")  # id, flags, and the number of questions, answers, authorities, additionals
_TAIL = struct.Struct("!HH")  # type, class
_OPT = struct.Struct("!BHHBBHH")  # root, type 41, payload size, extended rcode, version, flags, length of the options

QR, AA, TC, RD, RA = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
CLASS_IN, CLASS_ANY = 1, 255
TYPE_OPT, TYPE_IXFR, TYPE_AXFR = 41, 251, 252

PLAIN_SIZE = 512  # bytes a client without EDNS can take over UDP
PAYLOAD_SIZE = 1232  # bytes that pass any path of IPv6's smallest MTU unfragmented: no reply over UDP is longer
STREAM_SIZE = 65535


class Query(NamedTuple):
    id: int
    flags: int
    name: bytes  # wire form, in the case it came
    rtype: int
    rclass: int
    edns: bool
    payload: int  # bytes the client can take over UDP

    @property
    def labels(self) -> tuple[str, ...]:
        """Lower case, leaf first, without the root. Raises ValueError if the bytes are not a name."""
        found: list[str] = []
        at = 0
        while length := self.name[at]:
            if length > 63 or at + length >= len(self.name) - 1:
                raise ValueError("not a name")
            found.append(self.name[at + 1 : at + 1 + length].decode("latin-1").lower())
            at += length + 1
        return tuple(found)


class Refusal(NamedTuple):
    """A packet that can be answered with an error only: the reply."""

    reply: bytes


def parse(packet: bytes) -> Query | Refusal | None:
    """None: not a query at all, and answering might start a quarrel between two servers."""
    if len(packet) < HEADER.size:
        return None
    number, flags, questions, answers, authorities, additionals = HEADER.unpack_from(packet)
    if flags & QR:
        return None
    if flags & 0x7800:  # opcode
        return Refusal(_bare(number, flags, NOTIMP))
    end = packet.find(0, HEADER.size) + 1
    if (questions, answers, authorities) != (1, 0, 0) or additionals > 1 or not end or end - HEADER.size > 255:
        return Refusal(_bare(number, flags, FORMERR))
    rest = packet[end:]
    if len(rest) < _TAIL.size:
        return Refusal(_bare(number, flags, FORMERR))
    rtype, rclass = _TAIL.unpack_from(rest)
    query = Query(number, flags, packet[HEADER.size : end], rtype, rclass, False, PLAIN_SIZE)
    if not additionals:
        return query if len(rest) == _TAIL.size else Refusal(_bare(number, flags, FORMERR))
    return _with_edns(query, rest[_TAIL.size :])


def _with_edns(query: Query, record: bytes) -> Query | Refusal:
    if len(record) < _OPT.size:
        return Refusal(_bare(query.id, query.flags, FORMERR))
    root, rtype, payload, _, version, _, length = _OPT.unpack_from(record)
    if root or rtype != TYPE_OPT or len(record) != _OPT.size + length:
        return Refusal(_bare(query.id, query.flags, FORMERR))
    query = query._replace(edns=True, payload=min(max(payload, PLAIN_SIZE), PAYLOAD_SIZE))
    return Refusal(failure(query, BADVERS)) if version else query


def failure(query: Query, rcode: int, flags: int = 0) -> bytes:
    """A reply without records; `flags` are added to its own."""
    header = HEADER.pack(query.id, QR | query.flags & RD | flags | rcode & 15, 1, 0, 0, int(query.edns))
    question = query.name + _TAIL.pack(query.rtype, query.rclass)
    return header + question + (_OPT.pack(0, TYPE_OPT, PAYLOAD_SIZE, rcode >> 4, 0, 0, 0) if query.edns else b"")


def _bare(number: int, flags: int, rcode: int) -> bytes:
    """For packets whose question cannot be given back."""
    return HEADER.pack(number, QR | flags & (0x7800 | RD) | rcode, 0, 0, 0, 0)
