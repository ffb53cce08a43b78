"""One entry of the service table -> its entries in the maps. Pure; equal entries give equal bytes.

Sockets take what they can answer to the letter. The rest has no entry, so that the dataplane beneath sees the packet
and answers: SCTP; a Local policy without a local backend, where the client is to hear nothing, which connect() cannot
give; a load balancer's address with source ranges, since a socket has no source address yet when it asks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clusterip.dataplane.ebpf.config import LOOPBACK, Config
from clusterip.dataplane.ebpf.layout import (
    NODE_ONLY,
    PROTOCOL_NUMBERS,
    Contents,
    Frontend,
    Service,
    frontend_key,
    member_key,
    place_value,
    service_id,
    service_value,
    set_id,
    slot_key,
)
from clusterip.services import table
from clusterip.services.table import Backend, Entry, EntryKey, FrontendKind

_NO_SET = bytes(8)
_PRESENT = (1).to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class Piece:
    """All that one entry puts into the maps."""

    key: EntryKey
    services: dict[bytes, bytes] = field(default_factory=dict)
    slots: dict[bytes, bytes] = field(default_factory=dict)
    members: dict[bytes, bytes] = field(default_factory=dict)
    left: tuple[table.Frontend, ...] = ()  # frontends for the dataplane beneath to answer

    @property
    def contents(self) -> Contents:
        return {"services": self.services, "slots": self.slots, "members": self.members}


def compile_entry(entry: Entry, config: Config) -> Piece:
    """`entry.family` must be `config.family`."""
    services: dict[bytes, bytes] = {}
    used: dict[bytes, Sequence[Backend]] = {}
    left = []
    for frontend in entry.frontends():
        backends = _backends(entry, frontend)
        if backends is None:
            left.append(frontend)
            continue
        for key, flags in _keys(frontend, config):
            if key not in services:
                services[key] = _service(entry, backends, flags)
                used[set_id(entry.key, backends)] = backends
    places = [(s, i, b) for s, found in used.items() for i, b in enumerate(found)]
    remembers = bool(entry.affinity_seconds) or entry.protocol == "UDP"
    return Piece(
        key=entry.key,
        services=services,
        slots={slot_key(s, i): place_value(b.address, b.port) for s, i, b in places},
        members={member_key(s, b.address, b.port): _PRESENT for s, _, b in places if remembers},
        left=tuple(left),
    )


def _service(entry: Entry, backends: Sequence[Backend], flags: int) -> bytes:
    name = set_id(entry.key, backends) if backends else _NO_SET
    return service_value(Service(name, service_id(entry.key), len(backends), entry.affinity_seconds, flags))


def _backends(entry: Entry, frontend: table.Frontend) -> Sequence[Backend] | None:
    """(): refuse. None: not for sockets.

    An external Local policy never binds a socket: what connects is of this node, and may use any backend.
    """
    if entry.protocol not in PROTOCOL_NUMBERS:
        return None
    if not entry.has_backends:
        return ()
    if frontend.kind is FrontendKind.LOAD_BALANCER and entry.source_ranges:
        return None
    local = entry.internal_local and not frontend.kind.external
    return (entry.local if local else entry.cluster) or None


def _keys(frontend: table.Frontend, config: Config) -> Iterator[tuple[bytes, int]]:
    """Where the frontend is in the map, with the flags there."""
    loopback = LOOPBACK[config.family]
    if frontend.address:
        addresses = [(frontend.address, 0)]
    else:
        addresses = [(a, 0) for a in config.node_port_addresses if a != loopback]
        addresses += [(loopback, NODE_ONLY)] if config.localhost_node_ports else []
    for address, flags in addresses:
        yield frontend_key(Frontend(address, frontend.port, frontend.protocol)), flags
