"""The connection table: what it says of a packet overrules the rules."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.walk.hooks import Socket, Translation
from clusterip.rulesets.conntrack import Entry


class Tracked(NamedTuple):
    entry: Entry
    translation: Translation
    state: Literal["NEW", "ESTABLISHED"]


def tracked(facts: Facts, packet: Packet) -> Tracked | None:
    """The entry that `packet` belongs to. Its source port must be known."""
    if not packet.source_port:
        return None
    for entry in _of(facts):
        way = entry.original
        if entry.protocol == packet.protocol and (
            (way.source, way.source_port, way.destination, way.destination_port)
            == (packet.source, packet.source_port, packet.destination, packet.destination_port)
        ):
            return Tracked(entry, translation(entry), "NEW" if entry.unreplied else "ESTABLISHED")
    return None


def translation(entry: Entry) -> Translation:
    """What the reply's addresses say was done to the question's."""
    one, other = entry.original, entry.reply
    to = Socket(other.source, other.source_port)
    by = Socket(other.destination, other.destination_port)
    return Translation(
        to if to != (one.destination, one.destination_port) else None,
        by if by != (one.source, one.source_port) else None,
    )


def flows(facts: Facts, packet: Packet) -> tuple[Entry, ...]:
    """Connections of the same client to the same destination, from whatever port."""
    return tuple(
        e
        for e in _of(facts)
        if e.protocol == packet.protocol
        and e.original.destination == packet.destination
        and e.original.destination_port == packet.destination_port
        and e.original.source == packet.source
    )


def _of(facts: Facts) -> Iterable[Entry]:
    return facts.conntrack.entries if facts.conntrack else ()
