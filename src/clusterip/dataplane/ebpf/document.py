"""The maps as JSON: what `clusterip rules --proxy-mode ebpf` prints, and what a node's live maps read like. Pure."""

import json
from collections.abc import Collection, Mapping

from clusterip.dataplane.ebpf.compile import Piece
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.layout import (
    NODE_ONLY,
    Contents,
    read_frontend,
    read_member,
    read_place,
    read_service,
    read_slot,
    service_id,
)
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.services.notation import Destination
from clusterip.services.table import Backend, Frontend


def complete(pieces: Collection[Piece]) -> str:
    """What the maps hold where these pieces are installed, and which frontends the dataplane beneath answers for."""
    names = {service_id(p.key): str(p.key.name) for p in pieces}
    document = describe(applied(EMPTY, load(pieces, EMPTY).steps), names)
    left = [{"frontend": _frontend(f), "service": str(p.key.name)} for p in pieces for f in p.left]
    return json.dumps({**document, "beneath": left}, indent=2) + "\n"


def describe(contents: Contents, names: Mapping[bytes, str]) -> dict[str, list[dict[str, object]]]:
    """`names`: of Services by id; one that is not known goes by its id alone. Sorted, so that two can be compared."""
    services = sorted((read_frontend(k), read_service(v)) for k, v in contents["services"].items())
    slots = sorted((read_slot(k), read_place(v)) for k, v in contents["slots"].items())
    members = sorted(read_member(k) for k in contents["members"])
    return {
        "services": [
            {
                "frontend": str(Destination(*frontend)),
                "service": names.get(service.id, ""),
                "id": service.id.hex(),
                "set": service.set.hex(),
                "backends": service.backends,
                "affinitySeconds": service.affinity,
                "nodeOnly": bool(service.flags & NODE_ONLY),
            }
            for frontend, service in services
        ],
        "slots": [{"set": s.hex(), "index": i, "backend": str(Backend(*place))} for (s, i), place in slots],
        "members": [{"set": s.hex(), "backend": str(Backend(address, port))} for s, address, port in members],
    }


def _frontend(frontend: Frontend) -> str:
    if frontend.address:
        return str(Destination(frontend.address, frontend.port, frontend.protocol))
    return f"node port {frontend.port}/{frontend.protocol.lower()}"
