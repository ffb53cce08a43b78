"""Routes, and the rules that choose their table: `ip route`, `ip rule`."""

import re
from collections.abc import Callable
from ipaddress import ip_network

from msgspec import Struct, structs

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered


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


_TYPES = frozenset(
    {"unicast", "local", "broadcast", "multicast", "anycast", "blackhole", "unreachable", "prohibit", "throw", "nat"}
)
_ROUTE_FLAGS = frozenset({"onlink", "linkdown", "dead", "pervasive", "offload", "trap", "cache"})


def is_route(line: str) -> bool:
    words = line.split()
    at = 1 if words and words[0] in _TYPES else 0
    if len(words) <= at or not is_destination(words[at]):
        return False
    # A route of several hops may say nothing more on its first line.
    return at == 1 or "/" in words[0] or (len(words) > 1 and words[1] in _AFTER_DESTINATION)


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
    hops: list[list[NextHop]] = []
    for number, line in numbered(text.split("\n")):
        words = line.split()
        if words[0] == "nexthop" and found:
            hops[-1].append(_hop(words[1:]))
        elif not is_route(line):
            problems.unreadable(number, line)
        else:
            found.append(_route(words, origin.line + number))
            hops.append([])
    routes = tuple(structs.replace(r, hops=tuple(h)) if h else r for r, h in zip(found, hops, strict=True))
    return Reading(Routes(routes), len(routes), problems.all())


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
