"""From the bytes of a query to the bytes of its reply, at once if the zone knows, later if others must be asked."""

from typing import NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype

from clusterip.dns.addresses import Concern
from clusterip.dns.encode import Cache, Encoded, message_of, wire_name
from clusterip.dns.forward import Forwarder, Unanswered
from clusterip.dns.query import (
    CLASS_ANY,
    CLASS_IN,
    FORMERR,
    NXDOMAIN,
    PAYLOAD_SIZE,
    RA,
    REFUSED,
    SERVFAIL,
    STREAM_SIZE,
    TC,
    TYPE_AXFR,
    TYPE_IXFR,
    Query,
    Refusal,
    failure,
    parse,
)
from clusterip.dns.zone import Answer, Zone


class Pending(NamedTuple):
    """A reply that others have to be asked for. With an `answer`: a CNAME of ours that leads out of the zone."""

    query: Query
    packet: bytes
    limit: int  # bytes the reply may have
    answer: Answer | None = None


class Responder:
    """`ready` is False until the objects have been listed once: a "no such name" before that would be a lie."""

    def __init__(self, zone: Zone, forwarder: Forwarder, ttl: int) -> None:
        self.ready = False
        self._zone = zone
        self._forwarder = forwarder
        self._ttl = ttl
        self._cache = Cache()
        self._recursion = RA if forwarder.servers else 0

    def forget(self, concerns: frozenset[Concern]) -> None:
        self._cache.forget(concerns)

    def respond(self, packet: bytes, stream_limit: int = 0) -> bytes | Pending | None:
        """`stream_limit`: bytes a reply may have on a stream; 0: it came over UDP. None: best left unanswered."""
        query = parse(packet)
        if query is None:
            return None
        if isinstance(query, Refusal):
            return query.reply
        limit = stream_limit or query.payload
        key = (query.name.lower(), query.rtype, query.rclass, query.edns)
        encoded = self._cache.get(key)
        if encoded is not None:
            return encoded.reply(query, limit)
        return self._first_time(key, query, packet, limit)

    def _first_time(self, key: object, query: Query, packet: bytes, limit: int) -> bytes | Pending:
        try:
            name = query.labels
        except ValueError:
            return failure(query._replace(name=b"\0"), FORMERR)
        if query.rclass not in (CLASS_IN, CLASS_ANY) or query.rtype in (TYPE_AXFR, TYPE_IXFR):
            return failure(query, REFUSED)
        if not self.ready:
            return failure(query, SERVFAIL)
        answer = self._zone.answer(name, dns.rdatatype.to_text(dns.rdatatype.RdataType.make(query.rtype)))
        if answer is None or answer.chase:
            return self._elsewhere(query, packet, limit, answer)
        encoded = Encoded(query, answer, self._ttl, recursion=bool(self._recursion))
        self._cache.put(key, encoded)
        return encoded.reply(query, limit)

    def _elsewhere(self, query: Query, packet: bytes, limit: int, answer: Answer | None) -> bytes | Pending:
        if self._forwarder.servers:
            return Pending(query, packet, limit, answer)
        if answer is None:
            # As a server without recursion says; NXDOMAIN would claim that the name is nowhere.
            return failure(query, REFUSED)
        return Encoded(query, answer, self._ttl, recursion=False).reply(query, limit)

    async def finish(self, pending: Pending) -> bytes:
        query = pending.query
        try:
            if pending.answer is None:
                reply = await self._forwarder.ask(pending.packet, pending.packet[12 : 12 + len(query.name) + 4])
            else:
                reply = await self._chase(query, pending.answer)
        except (Unanswered, dns.exception.DNSException):  # no answer, or one that cannot be read or passed on
            return failure(query, SERVFAIL, RA)
        if len(reply) <= pending.limit:
            return reply
        return failure(query, reply[3] & 15, RA | TC)

    async def _chase(self, query: Query, answer: Answer) -> bytes:
        """The CNAME, and after it what the name it leads to has."""
        target = dns.message.make_query(wire_name(answer.chase), dns.rdatatype.RdataType.make(query.rtype))
        target.use_edns(0, payload=PAYLOAD_SIZE)
        wire = target.to_wire()
        question = wire[12 : 12 + len(wire_name(answer.chase).to_wire() or b"") + 4]
        found = dns.message.from_wire(await self._forwarder.ask(wire, question))
        message = message_of(query, answer, self._ttl)
        message.id = query.id
        message.flags |= dns.flags.RA | (query.flags & dns.flags.RD)
        message.answer.extend(found.answer)
        if found.rcode() not in (dns.rcode.NOERROR, dns.rcode.Rcode.make(NXDOMAIN)):
            return failure(query, SERVFAIL, RA)
        message.set_rcode(found.rcode())
        return message.to_wire(max_size=STREAM_SIZE)
