"""The maps of eBPF mode as JSON: what `clusterip rules --proxy-mode ebpf` prints and a bundle holds. `text` and `read`
are inverses. What the programs do with them, `dataplane.ebpf` knows.
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading

KIND = "SocketMaps"
Protocol: TypeAlias = Literal["TCP", "UDP"]
Hex: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]  # eight bytes

_PLACE = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})(?:/(?P<protocol>tcp|udp))?"
)


class Service(Struct, frozen=True):
    """A frontend, and what it leads to."""

    address: str  # canonical
    port: int
    protocol: Protocol
    id: Hex  # the same for all frontends of one Service port in a family
    set: Hex  # of its backends
    backends: int  # 0: it refuses
    affinity: int = 0  # seconds; 0: none
    node_only: bool = False  # for sockets in the node's own network namespace
    name: str = ""  # "default/web:http"; "": not known


class Slot(Struct, frozen=True):
    """A backend of a set."""

    set: Hex
    index: int
    address: str
    port: int


class Member(Struct, frozen=True):
    """One that a client may be remembered with."""

    set: Hex
    address: str
    port: int


Why: TypeAlias = Literal[
    "foreign",  # it reads none of the maps
    "other-code",  # it reads the maps, and its instructions are none of this version's
    "unread-maps",  # it is this version's, and some of its maps are not those that were read
    "elsewhere",  # its link leads to another cgroup
]


class Stray(Struct, frozen=True):
    """A program at one of the hooks of eBPF mode that is not this version's own, or not where it should be."""

    hook: str  # "connect4"
    program: str  # "connect4 (412)": its name and the kernel's number
    why: Why
    cgroup: str = ""  # where it is instead


class SocketMaps(Struct, frozen=True):
    """Both families."""

    services: tuple[Service, ...] = ()
    slots: tuple[Slot, ...] = ()
    members: tuple[Member, ...] = ()
    hooks: tuple[str, ...] | None = None  # where programs that read the maps run: "connect4"; None: not told
    cgroup: str = ""  # path of that whose sockets meet them; "": not told
    strays: tuple[Stray, ...] = ()


class Left(Struct, frozen=True):
    """A frontend that the dataplane beneath answers for."""

    frontend: str
    service: str


class _Service(Struct, frozen=True, rename="camel"):
    frontend: str
    id: Hex
    set: Hex
    backends: Annotated[int, Meta(ge=0, lt=1 << 32)]
    service: str = ""
    affinity_seconds: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    node_only: bool = False


class _Slot(Struct, frozen=True):
    set: Hex
    index: Annotated[int, Meta(ge=0, lt=1 << 32)]
    backend: str


class _Member(Struct, frozen=True):
    set: Hex
    backend: str


class _Document(Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str
    kind: Literal["SocketMaps"]
    hooks: tuple[str, ...] | UnsetType = UNSET
    cgroup: str | UnsetType = UNSET
    strays: tuple[Stray, ...] | UnsetType = UNSET
    services: Sequence[_Service]
    slots: Sequence[_Slot]
    members: Sequence[_Member]
    beneath: Sequence[Left] | UnsetType = UNSET


def text(maps: SocketMaps, beneath: Sequence[Left] | None = None) -> str:
    """JSON, in the order of `maps`. `beneath`: None: not known."""
    document = _Document(
        api_version="clusterip/v1",
        kind="SocketMaps",
        hooks=UNSET if maps.hooks is None else maps.hooks,
        cgroup=maps.cgroup or UNSET,
        strays=maps.strays or UNSET,
        services=[
            _Service(
                frontend=f"{_place(s.address, s.port)}/{s.protocol.lower()}",
                service=s.name,
                id=s.id,
                set=s.set,
                backends=s.backends,
                affinity_seconds=s.affinity,
                node_only=s.node_only,
            )
            for s in maps.services
        ],
        slots=[_Slot(s.set, s.index, _place(s.address, s.port)) for s in maps.slots],
        members=[_Member(m.set, _place(m.address, m.port)) for m in maps.members],
        beneath=UNSET if beneath is None else beneath,
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def is_document(document: object) -> bool:
    """Whether decoded JSON is one of these."""
    return isinstance(document, dict) and document.get("kind") == KIND


def read(document: object, origin: Origin = INPUT) -> Reading[SocketMaps]:
    """Of decoded JSON. An entry that names no place is a problem and is left out."""
    problems = Problems(origin)
    try:
        found = msgspec.convert(document, _Document, strict=True)
    except msgspec.ValidationError as error:
        problems.add(-1, f"maps of eBPF mode: {error}")
        return Reading(SocketMaps(), 0, problems.all())
    services, slots, members = list[Service](), list[Slot](), list[Member]()
    for entry in found.services:
        for address, port, protocol in _read(entry.frontend, problems, with_protocol=True):
            asked = (entry.id, entry.set, entry.backends, entry.affinity_seconds, entry.node_only, entry.service)
            services.append(Service(address, port, "UDP" if protocol == "udp" else "TCP", *asked))
    for slot in found.slots:
        slots += [Slot(slot.set, slot.index, a, p) for a, p, _ in _read(slot.backend, problems)]
    for member in found.members:
        members += [Member(member.set, a, p) for a, p, _ in _read(member.backend, problems)]
    maps = SocketMaps(
        tuple(services),
        tuple(slots),
        tuple(members),
        None if found.hooks is UNSET else found.hooks,
        "" if found.cgroup is UNSET else found.cgroup,
        () if found.strays is UNSET else found.strays,
    )
    return Reading(maps, len(services) + len(slots) + len(members), problems.all())


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _read(place: str, problems: Problems, *, with_protocol: bool = False) -> Iterator[tuple[str, int, str]]:
    """Address, port, protocol; nothing where they cannot be read."""
    form = _PLACE.fullmatch(place)
    try:
        if form is None or bool(form["protocol"]) != with_protocol or int(form["port"]) > 65535:
            raise ValueError("no address and port")
        address = str(ipaddress.ip_address(form["six"] or form["four"]))
    except ValueError as error:
        problems.add(-1, f"maps of eBPF mode: {place!r}: {error}")
        return
    yield address, int(form["port"]), form["protocol"] or ""
