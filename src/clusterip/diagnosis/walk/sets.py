"""Whether a packet is in a set of ipset."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.walk.branch import Answer, Condition
from clusterip.diagnosis.walk.surroundings import is_address
from clusterip.rulesets.ipset import IPSet, Member


class Index:
    """Members without ranges by their parts; the others, which are tried one by one, longest prefix first."""

    def __init__(self, of: IPSet) -> None:
        self.exact: dict[tuple[str, ...], Member] = {}
        self.wide: list[Member] = []
        for member in of.members:
            if any(_is_wide(part) for part in member.parts):
                self.wide.append(member)
            else:
                self.exact[tuple(map(_plain, member.parts))] = member
        self.wide.sort(key=lambda m: -_length(m.parts[0]))


@dataclass(frozen=True, slots=True)
class Sets:
    sets: Mapping[str, IPSet]
    indexes: dict[str, Index] = field(default_factory=dict)  # of those that were asked
    besides: dict[tuple[str, int], Mapping[tuple[str, ...], Sequence[Member]]] = field(default_factory=dict)

    def index(self, of: IPSet) -> Index:
        found = self.indexes.get(of.name)
        if found is None:
            found = self.indexes[of.name] = Index(of)
        return found

    def sources(self, name: str, directions: Sequence[str], packet: Packet) -> list[str] | None:
        """Addresses and networks that stand in the set with what `packet` has besides its source. None: it asks for no
        source's address, or for more of it, or is not known."""
        found = self.sets.get(name)
        if found is None or found.type.startswith("list:"):
            return None
        asked = list(zip(found.dimensions, directions, strict=False))
        of_source = [i for i, (_, side) in enumerate(asked) if side.startswith("src")]
        if len(of_source) != 1 or asked[of_source[0]][0] not in ("ip", "net") or len(asked) < len(found.dimensions):
            return None
        at = of_source[0]
        wanted = [None if i == at else _field(kind, side, packet) for i, (kind, side) in enumerate(asked)]
        if any(w is None for i, w in enumerate(wanted) if i != at):
            return None
        members = self._beside(found, at).get(tuple(w for w in wanted if w is not None), ())
        wide = [m for m in self.index(found).wide if any(_is_wide(p) for i, p in enumerate(m.parts) if i != at)]
        held = [*members, *(m for m in wide if _holds(m, wanted))]
        if any(m.nomatch for m in held):
            return None
        return [m.parts[at] for m in held]

    def _beside(self, of: IPSet, at: int) -> Mapping[tuple[str, ...], Sequence[Member]]:
        """Members by what they have besides dimension `at`."""
        key = (of.name, at)
        found = self.besides.get(key)
        if found is None:
            grouped: dict[tuple[str, ...], list[Member]] = {}
            for member in of.members:
                rest = tuple(_plain(p) for i, p in enumerate(member.parts) if i != at)
                if not any(_is_wide(p) for p in rest):
                    grouped.setdefault(rest, []).append(member)
            found = self.besides[key] = grouped
        return found


def in_set(sets: Sets, name: str, directions: Sequence[str], packet: Packet) -> Answer:
    found = sets.sets.get(name)
    unknown = Condition(
        f"set {name} {','.join(directions)}", "unknown", f"it is in set {name}", f"it is not in set {name}"
    )
    if found is None:
        return unknown
    if found.type.startswith("list:"):
        answers = [in_set(sets, m.parts[0], directions, packet) for m in found.members]
        return True if True in answers else unknown if any(a is not False for a in answers) else False
    dimensions = found.dimensions
    if found.type == "bitmap:port":  # it knows no protocols
        packet = replace(packet, protocol="tcp")
    wanted = [_field(kind, side, packet) for kind, side in zip(dimensions, directions, strict=False)]
    if len(wanted) < len(dimensions):
        return unknown
    return _looked_up(sets.index(found), wanted, unknown)


def _looked_up(index: Index, wanted: Sequence[str | None], unknown: Condition) -> Answer:
    known = [w for w in wanted if w is not None]
    if len(known) == len(wanted):
        member = index.exact.get(tuple(known))
        if member is None:
            member = next((m for m in index.wide if _holds(m, known)), None)
        return member is not None and not member.nomatch
    candidates: Iterable[Member] = (*index.exact.values(), *index.wide)
    return unknown if any(_holds(m, wanted) for m in candidates) else False


def _field(kind: str, side: str, packet: Packet) -> str | None:
    """What the packet has in one dimension; None: not known."""
    source = side.startswith("src")
    match kind:
        case "ip" | "net":
            return (packet.source if source else packet.destination) or None
        case "port":
            port = packet.source_port if source else packet.destination_port
            return f"{packet.protocol}:{port}" if port or not source else None
        case "mark":
            return f"{packet.mark:#010x}"
        case "iface":
            return packet.in_interface if source else packet.out_interface
    return None


def _holds(member: Member, wanted: Sequence[str | None]) -> bool:
    return len(member.parts) == len(wanted) and all(
        value is None or _covers(part, value) for part, value in zip(member.parts, wanted, strict=True)
    )


@lru_cache(maxsize=1 << 14)
def _covers(part: str, value: str) -> bool:
    if part == value:
        return True
    if ":" in value and not is_address(value):
        protocol, _, port = _plain(part).partition(":")
        first, _, last = port.partition("-")
        own, _, number = value.partition(":")
        return own == protocol and first.isdecimal() and int(first) <= int(number) <= int(last or first)
    if not is_address(value):
        return False
    address = ipaddress.ip_address(value)
    try:
        if "-" in part:
            one, _, other = part.partition("-")
            first_, last_ = ipaddress.ip_address(one), ipaddress.ip_address(other)
            return address.version == first_.version and int(first_) <= int(address) <= int(last_)
        return address in ipaddress.ip_network(part, strict=False)
    except ValueError:
        return False


def _is_wide(part: str) -> bool:
    return "/" in part or ("-" in part and part.split("-")[0].rpartition(":")[2].replace(".", "").isdecimal())


def _plain(part: str) -> str:
    """A port without a protocol is TCP's. Source: ipset(8)."""
    return f"tcp:{part}" if part.isdecimal() else part


def _length(part: str) -> int:
    _, slash, length = part.partition("/")
    return int(length) if slash and length.isdecimal() else 0
