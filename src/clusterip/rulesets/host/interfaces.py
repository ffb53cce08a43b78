"""Interfaces and their addresses: `ip addr`, `ip link` (also -d, -br, -o), `bridge link`."""

import re
from ipaddress import ip_address
from itertools import pairwise

from msgspec import Struct, structs

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered


class InterfaceAddress(Struct, frozen=True):
    address: str
    length: int
    scope: str = ""  # "global", "link", "host"; "": a brief listing does not say
    peer: str = ""
    flags: tuple[str, ...] = ()  # "secondary", "deprecated", "tentative"
    line: int = 0


class Interface(Struct, frozen=True):
    name: str
    index: int = 0  # 0: a brief listing does not say
    peer: str = ""  # what stands behind "@": the other end of a veth pair ("if3": in another namespace)
    flags: tuple[str, ...] = ()  # "UP", "LOWER_UP", "NOARP", "PROMISC"
    mtu: int = 0
    state: str = ""  # "UP", "DOWN", "UNKNOWN"
    master: str = ""  # the bridge that it is a port of
    kind: str = ""  # of `ip -d`: "veth", "bridge", "vxlan", "dummy", "ipvs"
    hardware: str = ""
    hairpin: bool | None = None  # of a port of a bridge; None: not said
    addresses: tuple[InterfaceAddress, ...] = ()
    line: int = 0


class Interfaces(Struct, frozen=True):
    interfaces: tuple[Interface, ...] = ()


_HEAD = re.compile(r"(\d+): ([^\s:@]+)(?:@([^\s:]+))?: <([^>]*)>(.*)")
_ONE_LINE = re.compile(r"(\d+): (\S+) +(inet6? .*)")  # of `ip -o addr`
_BRIEF = re.compile(r"([^\s@:]+)(?:@(\S+))?\s+(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT|NOTPRESENT|TESTING)\b(.*)")
_HARDWARE = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2})+")
_KINDS = frozenset(
    {
        "veth",
        "bridge",
        "vxlan",
        "dummy",
        "ipip",
        "sit",
        "gre",
        "vlan",
        "bond",
        "tun",
        "ipvlan",
        "macvlan",
        "wireguard",
        "ifb",
        "ipvs",
        "geneve",
        "vrf",
        "vti",
        "ip6tnl",
    }
)


def read_interfaces(text: str, origin: Origin = INPUT) -> Reading[Interfaces]:
    """What several commands say of one interface is put together."""
    problems = Problems(origin)
    known: dict[str, Interface] = {}
    addresses: dict[str, dict[tuple[str, int], InterfaceAddress]] = {}
    name = ""
    for number, line in numbered(text.split("\n")):
        at = origin.line + number
        interface = _interface(line, at)
        if interface is not None:
            name = interface.name
            known[name] = _merged(known[name], interface) if name in known else interface
            own = addresses.setdefault(name, {})
            for address in interface.addresses:
                own.setdefault((address.address, address.length), address)
        elif not line[0].isspace() or not name:
            problems.unreadable(number, line)
        elif (found := _inet(line.split(), at)) is not None:
            addresses[name].setdefault((found.address, found.length), found)
        else:
            known[name] = _detailed(known[name], line.split())
    interfaces = tuple(structs.replace(i, addresses=tuple(addresses[i.name].values())) for i in known.values())
    facts = len(interfaces) + sum(map(len, addresses.values()))
    return Reading(Interfaces(interfaces), facts, problems.all())


def _merged(old: Interface, new: Interface) -> Interface:
    given = {n: value for n, value in structs.asdict(new).items() if value not in ("", 0, (), None) and n != "line"}
    return structs.replace(old, **given)


def _interface(line: str, at: int) -> Interface | None:
    if head := _HEAD.fullmatch(line):
        words = _pairs(head[5].split(), ("mtu", "state", "master"))
        mtu, state = words.get("mtu", ""), words.get("state", "")
        flags = tuple(head[4].split(",")) if head[4] else ()
        return Interface(
            *(head[2], int(head[1][:9]), head[3] or "", flags, int(mtu) if mtu.isdecimal() else 0),
            state=state if state.isupper() else "",  # `bridge link` gives that of the port: "forwarding"
            master=words.get("master", ""),
            line=at,
        )
    if one := _ONE_LINE.fullmatch(line):
        address = _inet(one[3].replace("\\", " ").split(), at)
        return Interface(one[2], int(one[1][:9]), addresses=(address,) if address else (), line=at)
    if brief := _BRIEF.fullmatch(line):
        return _brief(brief, at)
    return None


def _brief(found: re.Match[str], at: int) -> Interface:
    words = found[4].split()
    own = [word for before, word in zip(("", *words), words, strict=False) if before != "peer"]
    addresses = tuple(address for word in own if (address := _address(word, at)))
    hardware = next((word for word in words if _HARDWARE.fullmatch(word)), "")
    flags = tuple(words[-1].strip("<>").split(",")) if words and words[-1][0] == "<" else ()
    return Interface(
        *(found[1], 0, found[2] or "", flags), state=found[3], hardware=hardware, addresses=addresses, line=at
    )


def _detailed(interface: Interface, words: list[str]) -> Interface:
    """A further line of an interface. Lines that say nothing of use here (lifetimes, queues) change nothing."""
    match words:
        case [link, hardware, *_] if link.startswith("link/"):
            return structs.replace(interface, hardware=hardware)
        case [kind, *_] if kind in _KINDS and not interface.kind:
            return structs.replace(interface, kind=kind)
    hairpin = _pairs(words, ("hairpin",)).get("hairpin")
    return structs.replace(interface, hairpin=hairpin == "on") if hairpin in ("on", "off") else interface


def _inet(words: list[str], at: int) -> InterfaceAddress | None:
    """ "inet 10.96.0.1/32 scope global kube-ipvs0"; None: the line is not like that."""
    match words:
        case ["inet" | "inet6", address, *rest]:
            peer = rest[1] if rest[:1] == ["peer"] and len(rest) > 1 else ""
            found = _address(address, at)
            if found is not None:
                scope = _pairs(rest, ("scope",)).get("scope", "")
                flags = tuple(word for word in rest if word in _ADDRESS_FLAGS)
                return structs.replace(found, scope=scope, peer=peer, flags=flags)
    return None


_ADDRESS_FLAGS = frozenset(
    {"secondary", "deprecated", "tentative", "dadfailed", "temporary", "dynamic", "noprefixroute"}
)


def _address(text: str, at: int) -> InterfaceAddress | None:
    address, _, length = text.partition("/")
    try:
        found = ip_address(address)
    except ValueError:
        return None
    most = found.max_prefixlen
    if length and not (length.isascii() and length.isdecimal() and int(length) <= most):
        return None
    return InterfaceAddress(address, int(length) if length else most, line=at)


def _pairs(words: list[str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in pairwise(words) if name in names}
