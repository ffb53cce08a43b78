"""What a machine says of itself: `ip addr`, `ip link` (also -d, -br), `ip route`, `ip rule`, `bridge link`,
`sysctl -a`, and lines of files below /sys and /proc.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
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


class NextHop(Struct, frozen=True):
    gateway: str = ""
    device: str = ""
    weight: int = 1


class Route(Struct, frozen=True):
    destination: str  # "10.244.1.0/24", "10.0.0.1/32"; "default"
    type: str = "unicast"  # "local", "blackhole", "unreachable", "prohibit", "throw", "broadcast", "multicast", "nat"
    hops: tuple[NextHop, ...] = ()  # one, but for multipath; none for types that send nothing
    source: str = ""
    metric: int = 0
    table: str = "main"  # a name or a number
    scope: str = ""
    protocol: str = ""
    flags: tuple[str, ...] = ()  # "onlink", "linkdown", "dead"
    more: tuple[str, ...] = ()
    line: int = 0


class Routes(Struct, frozen=True):
    routes: tuple[Route, ...] = ()


class PolicyRule(Struct, frozen=True):
    priority: int
    source: str = "all"
    destination: str = ""  # "": any
    mark: int = 0
    mask: int = 0  # 0: the mark is not asked
    came_in: str = ""
    goes_out: str = ""
    negated: bool = False
    table: str = ""  # "local", "main", "100"; "": `action` instead
    action: str = ""  # "unreachable", "blackhole", "prohibit", "goto 100", "nop"
    more: tuple[str, ...] = ()  # what else it asks: "ipproto", "tcp", "uidrange", "0-99", "suppress_prefixlength"
    line: int = 0


class PolicyRules(Struct, frozen=True):
    rules: tuple[PolicyRule, ...] = ()


class Settings(Struct, frozen=True):
    """Files below /proc/sys by their name with dots ("net.ipv4.ip_forward"), others by their path."""

    values: Mapping[str, str]
    lines: Mapping[str, int] = {}

    def number(self, name: str) -> int | None:
        """None: not known."""
        text = self.values.get(name, "").split()
        return int(text[0]) if text and re.fullmatch(r"-?\d{1,19}", text[0]) else None


class HairpinMode(Struct, frozen=True):
    bridge: str
    port: str
    on: bool
    line: int = 0


# --- interfaces -----------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"(\d+): ([^\s:@]+)(?:@([^\s:]+))?: <([^>]*)>(.*)")
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
    problems = Problems(origin)
    found: list[Interface] = []
    for number, line in numbered(text.split("\n")):
        at = origin.line + number
        interface = _interface(line, at)
        if interface is not None:
            found.append(interface)
        elif not line[0].isspace() or not found:
            problems.unreadable(number, line)
        else:
            found[-1] = _detailed(found[-1], line.split(), at)
    facts = len(found) + sum(len(interface.addresses) for interface in found)
    return Reading(Interfaces(tuple(found)), facts, problems.all())


def _interface(line: str, at: int) -> Interface | None:
    if head := _HEAD.fullmatch(line):
        words = _pairs(head[5].split(), ("mtu", "state", "master"))
        mtu = words.get("mtu", "")
        flags = tuple(head[4].split(",")) if head[4] else ()
        return Interface(
            *(head[2], int(head[1][:9]), head[3] or "", flags, int(mtu) if mtu.isdecimal() else 0),
            *(words.get("state", ""), words.get("master", "")),
            line=at,
        )
    if brief := _BRIEF.fullmatch(line):
        rest = brief[4].split()
        addresses = tuple(a for a in (_address(word, at) for word in rest) if a)
        hardware = next((word for word in rest if _HARDWARE.fullmatch(word)), "")
        return Interface(brief[1], 0, brief[2] or "", state=brief[3], hardware=hardware, addresses=addresses, line=at)
    return None


def _detailed(interface: Interface, words: list[str], at: int) -> Interface:
    """A further line of an interface. Lines that say nothing of use here (lifetimes, queues) change nothing."""
    match words:
        case ["inet" | "inet6", address, *rest]:
            peer = rest[1] if rest[:1] == ["peer"] and len(rest) > 1 else ""
            length = peer.partition("/")[2]
            found = _address(f"{address}/{length}" if length and "/" not in address else address, at)
            if found is None:
                return interface
            scope = _pairs(rest, ("scope",)).get("scope", "")
            flags = tuple(word for word in rest if word in _ADDRESS_FLAGS)
            found = structs.replace(found, scope=scope, peer=peer, flags=flags)
            return structs.replace(interface, addresses=(*interface.addresses, found))
        case [link, hardware, *_] if link.startswith("link/"):
            return structs.replace(interface, hardware=hardware)
        case [kind, *rest] if kind in _KINDS and not interface.kind:
            return structs.replace(interface, kind=kind)
    hairpin = _pairs(words, ("hairpin",)).get("hairpin")
    return structs.replace(interface, hairpin=hairpin == "on") if hairpin in ("on", "off") else interface


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


# --- routes and the rules that choose their table -------------------------------------------------------------------

_TYPES = frozenset(
    {"unicast", "local", "broadcast", "multicast", "anycast", "blackhole", "unreachable", "prohibit", "throw", "nat"}
)
_ROUTE_FLAGS = frozenset({"onlink", "linkdown", "dead", "pervasive", "offload", "trap", "cache"})


def is_route(line: str) -> bool:
    words = line.split()
    at = 1 if words and words[0] in _TYPES else 0
    if len(words) <= at or not is_destination(words[at]):
        return False
    return at == 1 or (len(words) > 1 and words[1] in _AFTER_DESTINATION)


_AFTER_DESTINATION = frozenset({"via", "dev", "proto", "scope", "src", "metric", "table", "nhid", "encap"})


def is_destination(text: str) -> bool:
    if text == "default":
        return True
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def read_routes(text: str, origin: Origin = INPUT) -> Reading[Routes]:
    problems = Problems(origin)
    found: list[Route] = []
    for number, line in numbered(text.split("\n")):
        words = line.split()
        if words[0] == "nexthop" and found:
            hop = _hop(words[1:])
            found[-1] = structs.replace(found[-1], hops=(*found[-1].hops, hop))
        elif not is_route(line):
            problems.unreadable(number, line)
        else:
            found.append(_route(words, origin.line + number))
    return Reading(Routes(tuple(found)), len(found), problems.all())


def _route(words: list[str], at: int) -> Route:
    kind = words.pop(0) if words[0] in _TYPES else "unicast"
    destination = words.pop(0)
    if destination != "default" and "/" not in destination:
        destination = str(ip_network(destination))
    named, flags, more = _options(words, ("via", "dev", "proto", "scope", "src", "metric", "table"))
    hop = NextHop(named.get("via", ""), named.get("dev", ""))
    metric = named.get("metric", "")
    return Route(
        destination,
        kind,
        (hop,) if hop != NextHop() else (),
        source=named.get("src", ""),
        metric=int(metric) if metric.isdecimal() else 0,
        table=named.get("table", "local" if kind in _LOCAL else "main"),
        scope=named.get("scope", ""),
        protocol=named.get("proto", ""),
        flags=flags,
        more=more,
        line=at,
    )


_LOCAL = frozenset({"local", "broadcast"})  # types that `ip route show table all` finds in the table "local"


def _hop(words: list[str]) -> NextHop:
    named, _, _ = _options(words, ("via", "dev", "weight"))
    weight = named.get("weight", "")
    return NextHop(named.get("via", ""), named.get("dev", ""), int(weight) if weight.isdecimal() else 1)


def _options(words: list[str], known: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """What the known options say, the flags, and the rest."""
    named: dict[str, str] = {}
    flags: list[str] = []
    more: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in known and word not in named:
            value = next(rest, "")
            named[word] = next(rest, "") if value in ("inet", "inet6") and word == "via" else value
        elif word in _ROUTE_FLAGS:
            flags.append(word)
        else:
            more.append(word)
    return named, tuple(flags), tuple(more)


def read_policy(text: str, origin: Origin = INPUT) -> Reading[PolicyRules]:
    problems = Problems(origin)
    found: list[PolicyRule] = []
    for number, line in numbered(text.split("\n")):
        rule = _policy_rule(line, origin.line + number)
        if rule is None:
            problems.unreadable(number, line)
        else:
            found.append(rule)
    return Reading(PolicyRules(tuple(found)), len(found), problems.all())


_ACTIONS = frozenset({"unreachable", "blackhole", "prohibit", "nop"})
_RULE = re.compile(r"(\d{1,10}):\s+(.*)")


def _policy_rule(line: str, at: int) -> PolicyRule | None:
    matched = _RULE.fullmatch(line)
    if matched is None:
        return None
    rule = PolicyRule(int(matched[1]), line=at)
    words = iter(matched[2].split())
    for word in words:
        if word == "not":
            rule = structs.replace(rule, negated=True)
        elif word in _ACTIONS:
            rule = structs.replace(rule, action=word)
        elif word in _RULE_FIELDS:
            value = next(words, "")
            if not value:
                return None
            rule = _RULE_FIELDS[word](rule, value)
        else:
            rule = structs.replace(rule, more=(*rule.more, word))
    return rule


def _marked(rule: PolicyRule, value: str) -> PolicyRule:
    mark, slash, mask = value.partition("/")
    try:
        return structs.replace(rule, mark=int(mark, 0), mask=int(mask, 0) if slash else 0xFFFFFFFF)
    except ValueError:
        return structs.replace(rule, more=(*rule.more, "fwmark", value))


_RULE_FIELDS: dict[str, Callable[[PolicyRule, str], PolicyRule]] = {
    "from": lambda rule, value: structs.replace(rule, source=value),
    "to": lambda rule, value: structs.replace(rule, destination=value),
    "fwmark": _marked,
    "iif": lambda rule, value: structs.replace(rule, came_in=value),
    "oif": lambda rule, value: structs.replace(rule, goes_out=value),
    "lookup": lambda rule, value: structs.replace(rule, table=value),
    "table": lambda rule, value: structs.replace(rule, table=value),
    "goto": lambda rule, value: structs.replace(rule, action=f"goto {value}"),
}

# --- settings -------------------------------------------------------------------------------------------------------

_SETTING = re.compile(r"([\w./@:-]+?)\s*=\s*(.*)")
_FILE = re.compile(r"(/(?:sys|proc)/[^\s:]+)\s*[:= ]\s*(.*)")
_REFUSED = re.compile(r"sysctl: ")
_HAIRPIN = re.compile(r"(?:/sys)?(?:/.*)?/net/([^/]+)/brif/([^/]+)/hairpin_mode")
_HAIRPIN_OF_PORT = re.compile(r"(?:/sys)?/.*/net/([^/]+)/brport/hairpin_mode")


def read_settings(text: str, origin: Origin = INPUT) -> Reading[Settings]:
    """Lines "net.ipv4.ip_forward = 1", "/proc/sys/net/ipv4/ip_forward:1", "/sys/devices/.../hairpin_mode 0"."""
    problems = Problems(origin)
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in numbered(text.split("\n")):
        if _REFUSED.match(line):
            continue  # "permission denied on key ...": the setting is not known, and is not there
        matched = _FILE.fullmatch(line) or _SETTING.fullmatch(line)
        if matched is None:
            problems.unreadable(number, line)
            continue
        name = setting_name(matched[1])
        values[name] = matched[2].strip()
        lines[name] = origin.line + number
    return Reading(Settings(values, lines), len(values), problems.all())


def setting_name(path: str) -> str:
    """ "/proc/sys/net/ipv4/ip_forward" and "net/ipv4/ip_forward" -> "net.ipv4.ip_forward"."""
    if path.startswith("/proc/sys/"):
        path = path.removeprefix("/proc/sys/")
    elif path.startswith("/"):
        return path
    # sysctl writes either separator; in "net.ipv4.conf.eth0/100.rp_filter" the slash is a dot of the name.
    first = next((c for c in path if c in "./"), ".")
    return path if first == "." else "".join({"/": ".", ".": "/"}.get(c, c) for c in path)


def hairpin_modes(settings: Settings) -> Iterator[HairpinMode]:
    """Those of bridge ports, from files below /sys. The bridge is "" where only the port names itself."""
    for path, value in settings.values.items():
        at = settings.lines.get(path, 0)
        if matched := _HAIRPIN.fullmatch(path):
            yield HairpinMode(matched[1], matched[2], value == "1", at)
        elif matched := _HAIRPIN_OF_PORT.fullmatch(path):
            yield HairpinMode("", matched[1], value == "1", at)


def _pairs(words: list[str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in pairwise(words) if name in names}
