"""What the program of bpf/socket.bpf.c does with a new socket, given the maps' contents. Pure.

`Passed` says that it leaves the address as it is: the dataplane beneath answers. The source is not its business:
a connection is made with the client's own address, which on the node is the node's.
"""

from collections.abc import Collection

from clusterip.dataplane.ebpf.compile import Piece
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.layout import (
    NODE_ONLY,
    PROTOCOL_NUMBERS,
    Contents,
    Frontend,
    frontend_key,
    member_key,
    read_place,
    read_service,
    slot_key,
)
from clusterip.services.route import Delivered, Outcomes, Packet, Passed, Rejected, Source

EMPTY: Contents = {"services": {}, "slots": {}, "members": {}}


def outcomes(pieces: Collection[Piece], packet: Packet) -> Outcomes:
    return walk(applied(EMPTY, load(pieces, EMPTY).steps), packet)


def walk(contents: Contents, packet: Packet) -> Outcomes:
    """For a client whose sockets are in the cgroup; a packet from outside meets no socket here."""
    if packet.source is Source.OUTSIDE or packet.protocol not in PROTOCOL_NUMBERS:
        return frozenset({Passed()})
    value = contents["services"].get(frontend_key(Frontend(packet.address, packet.port, packet.protocol)))
    if value is None:
        return frozenset({Passed()})
    service = read_service(value)
    if service.flags & NODE_ONLY and packet.source is not Source.NODE:
        return frozenset({Passed()})
    if not service.backends:
        return frozenset({Rejected()})
    found = [contents["slots"].get(slot_key(service.set, index)) for index in range(service.backends)]
    on_node = packet.source is Source.NODE
    if service.affinity and packet.remembered:
        address, port = packet.remembered.address, packet.remembered.port
        if member_key(service.set, address, port) in contents["members"]:
            return frozenset({Delivered(address, port, on_node)})
    return frozenset(Delivered(*read_place(place), on_node) if place else Rejected() for place in found)
