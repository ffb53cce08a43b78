"""Answers as bytes, kept: the second time a question is asked costs a look-up, three patches and a copy."""

from collections.abc import Iterable

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from clusterip.dns.addresses import Concern
from clusterip.dns.query import HEADER, PAYLOAD_SIZE, PLAIN_SIZE, RD, STREAM_SIZE, Query
from clusterip.dns.zone import Answer, Name, Record

ROTATIONS = 8  # an answer of several addresses begins with each of the first eight in turn


class Encoded:
    """One answer to one question. Encoded for a size and a rotation when first asked for, then kept."""

    def __init__(self, question: Query, answer: Answer, ttl: int, *, recursion: bool) -> None:
        self.concerns = answer.concerns
        self._question = question
        self._answer = answer
        self._ttl = ttl
        self._recursion = recursion
        self._made: dict[tuple[int, int], bytes] = {}
        self._full = 0  # bytes of the whole answer, once known
        addresses = sum(r.type in ("A", "AAAA") for r in answer.records)
        self._rotations = min(ROTATIONS, max(1, addresses))
        self._turn = 0

    def reply(self, query: Query, limit: int) -> bytes:
        """The reply to `query`, at most `limit` bytes long; what does not fit is cut off and said to be."""
        size = STREAM_SIZE if self._full and self._full <= limit else _size_class(limit)
        self._turn = (self._turn + 1) % self._rotations
        made = self._made.get((self._turn, size)) or self._make(self._turn, size)
        head = query.id.to_bytes(2, "big") + (made[2] | query.flags >> 8 & RD >> 8).to_bytes(1, "big")
        # The name goes back in the case it came in: some resolvers hide a nonce there.
        return b"".join((head, made[3 : HEADER.size], query.name, made[HEADER.size + len(query.name) :]))

    def _make(self, turn: int, size: int) -> bytes:
        message = message_of(self._question, self._answer, self._ttl, turn)
        if self._recursion:
            message.flags |= dns.flags.RA
        made = message.to_wire(max_size=size, prefer_truncation=True)
        if size == STREAM_SIZE:
            self._full = len(made)
        self._made[turn, size] = made
        return made


def _size_class(limit: int) -> int:
    """The largest of few sizes that fits, so that few encodings are kept."""
    return next(size for size in (STREAM_SIZE, PAYLOAD_SIZE, PLAIN_SIZE) if size <= limit)


def message_of(question: Query, answer: Answer, ttl: int, turn: int = 0) -> dns.message.QueryMessage:
    message = dns.message.QueryMessage(id=0)
    message.flags = dns.flags.QR | dns.flags.AA
    message.set_rcode(dns.rcode.NOERROR if answer.exists else dns.rcode.NXDOMAIN)
    name = wire_name(question.labels)
    rtype, rclass = dns.rdatatype.RdataType.make(question.rtype), dns.rdataclass.RdataClass.make(question.rclass)
    message.question.append(dns.rrset.RRset(name, rclass, rtype))
    message.answer.extend(_rrsets(answer.records, ttl, turn))
    message.authority.extend(_rrsets(answer.authority, ttl, 0))
    message.additional.extend(_rrsets(answer.additional, ttl, 0))
    if question.edns:
        message.use_edns(0, payload=PAYLOAD_SIZE)
    return message


def _rrsets(records: Iterable[Record], ttl: int, turn: int) -> list[dns.rrset.RRset]:
    """One for each record: a set that does not fit is left out whole, and its records would be shuffled."""
    sets: dict[tuple[Name, str], list[str]] = {}
    for record in records:
        sets.setdefault((record.name, record.type), []).append(record.data)
    return [
        dns.rrset.from_text(wire_name(name), ttl, "IN", rtype, data)
        for (name, rtype), held in sets.items()
        for data in held[turn:] + held[:turn]
    ]


def wire_name(labels: Name) -> dns.name.Name:
    return dns.name.Name([*(label.encode("latin-1") for label in labels), b""])


class Cache:
    """Encoded answers by question; those of a concern can be forgotten without looking at the others."""

    def __init__(self, room: int = 10_000) -> None:
        self._room = room
        self._held: dict[object, Encoded] = {}
        self._by_concern: dict[Concern, set[object]] = {}

    def __repr__(self) -> str:
        return f"Cache({len(self._held)} of {self._room})"

    def get(self, key: object) -> Encoded | None:
        return self._held.get(key)

    def put(self, key: object, encoded: Encoded) -> None:
        """The oldest goes if there is no room: a flood of made-up names costs memory for `room` answers, no more."""
        if len(self._held) >= self._room:
            self._drop(next(iter(self._held)))
        self._held[key] = encoded
        for concern in encoded.concerns:
            self._by_concern.setdefault(concern, set()).add(key)

    def forget(self, concerns: Iterable[Concern]) -> None:
        for concern in concerns:
            for key in tuple(self._by_concern.get(concern, ())):
                self._drop(key)

    def _drop(self, key: object) -> None:
        for concern in self._held.pop(key).concerns:
            keys = self._by_concern[concern]
            keys.discard(key)
            if not keys:
                del self._by_concern[concern]
