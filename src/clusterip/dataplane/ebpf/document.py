"""The maps as values of `rulesets.socketmaps`: what `clusterip rules --proxy-mode ebpf` prints, and what is read of
live maps and bundles. Pure."""

from collections.abc import Collection, Iterable, Mapping

from clusterip.dataplane.ebpf.compile import Piece
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.layout import (
    MAPS,
    NODE_ONLY,
    Contents,
    Frontend,
    MapName,
    family_of,
    frontend_key,
    member_key,
    place_value,
    read_frontend,
    read_member,
    read_place,
    read_service,
    read_slot,
    service_id,
    service_value,
    slot_key,
)
from clusterip.dataplane.ebpf.layout import Service as ServiceValue
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.rulesets.socketmaps import Left, Member, Service, Slot, SocketMaps, text
from clusterip.services import table
from clusterip.services.notation import Destination
from clusterip.services.table import Family

_PRESENT = (1).to_bytes(4, "little")


def complete(pieces: Collection[Piece]) -> str:
    """What the maps hold where these pieces are installed, and which frontends the dataplane beneath answers for."""
    names = {service_id(p.key): str(p.key.name) for p in pieces}
    maps = describe([applied(EMPTY, load(pieces, EMPTY).steps)], names)
    return text(maps, [Left(_frontend(f), str(p.key.name)) for p in pieces for f in p.left])


def describe(
    families: Iterable[Contents], names: Mapping[bytes, str], hooks: tuple[str, ...] | None = None
) -> SocketMaps:
    """`names`: of Services by id; one that is not known goes by its id alone. Sorted, so that two can be compared."""
    services, slots, members = list[Service](), list[Slot](), list[Member]()
    for contents in families:
        for frontend, service in sorted((read_frontend(k), read_service(v)) for k, v in contents["services"].items()):
            services.append(_service(frontend, service, names.get(service.id, "")))
        for (set_id, index), place in sorted((read_slot(k), read_place(v)) for k, v in contents["slots"].items()):
            slots.append(Slot(set_id.hex(), index, *place))
        for set_id, address, port in sorted(read_member(k) for k in contents["members"]):
            members.append(Member(set_id.hex(), address, port))
    return SocketMaps(tuple(services), tuple(slots), tuple(members), hooks)


def _service(frontend: Frontend, service: ServiceValue, name: str) -> Service:
    return Service(
        address=frontend.address,
        port=frontend.port,
        protocol="UDP" if frontend.protocol == "UDP" else "TCP",
        id=service.id.hex(),
        set=service.set.hex(),
        backends=service.backends,
        affinity=service.affinity,
        node_only=bool(service.flags & NODE_ONLY),
        name=name,
    )


def contents(maps: SocketMaps) -> dict[Family, Contents]:
    """The inverse of `describe`."""
    found: dict[Family, dict[MapName, dict[bytes, bytes]]] = {f: {n: {} for n in MAPS} for f in ("IPv4", "IPv6")}

    def put(name: MapName, key: bytes, value: bytes) -> None:
        found[family_of(name, key, value)][name][key] = value

    for s in maps.services:
        value = ServiceValue(
            bytes.fromhex(s.set), bytes.fromhex(s.id), s.backends, s.affinity, NODE_ONLY if s.node_only else 0
        )
        put("services", frontend_key(Frontend(s.address, s.port, s.protocol)), service_value(value))
    for slot in maps.slots:
        put("slots", slot_key(bytes.fromhex(slot.set), slot.index), place_value(slot.address, slot.port))
    for m in maps.members:
        put("members", member_key(bytes.fromhex(m.set), m.address, m.port), _PRESENT)
    return dict(found)


def _frontend(frontend: table.Frontend) -> str:
    if frontend.address:
        return str(Destination(frontend.address, frontend.port, frontend.protocol))
    return f"node port {frontend.port}/{frontend.protocol.lower()}"
