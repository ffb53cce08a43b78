"""What a packet has in each field that nftables can ask for, and whether a value meets what a rule wants."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TypeAlias

from clusterip.diagnosis.packet import PORTED, Packet
from clusterip.diagnosis.walk.branch import Answer, Condition, inverted
from clusterip.diagnosis.walk.surroundings import Surroundings, number, within
from clusterip.rulesets.nft import values as n


class Missing(Enum):
    ABSENT = "absent"  # the packet has no such field: the rule ends
    UNKNOWN = "unknown"


Scalar: TypeAlias = str | int | frozenset[str]  # a set: flags, of which some are up
Known: TypeAlias = Scalar | tuple[Scalar, ...]
Value: TypeAlias = Known | Missing | Condition  # a condition: of a question with two answers, "local" or not

PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp", 136: "udplite", 33: "dccp"}
_NAMES = {"icmpv6": "ipv6-icmp", "ipv6-icmp": "ipv6-icmp"}


def field(expression: n.Expression, packet: Packet, surroundings: Surroundings) -> Value:
    """Of everything that is not drawn by lot."""
    match expression:
        case n.Payload(protocol, name):
            return _payload(protocol, name, packet)
        case n.Meta(key):
            return _meta(key, packet)
        case n.Ct(key, direction):
            return _ct(key, direction, packet)
        case n.Fib(by, result):
            return _fib(by, result, packet, surroundings)
        case n.Binary(operator, left, right):
            one, two = field(left, packet, surroundings), field(right, packet, surroundings)
            return computed(operator, one, two)
        case _:
            return constant(expression)


def constant(expression: object) -> Value:
    match expression:
        case n.Number(value):
            return value
        case n.Address(text) | n.Word(text) | n.Quoted(text):
            return _NAMES.get(text, text)
        case n.Concat(parts):
            found = tuple(map(constant, parts))
            return tuple(f for f in found if isinstance(f, (str, int))) if all_scalar(found) else Missing.UNKNOWN
        case n.Flags(parts):
            return frozenset(str(constant(p)) for p in parts)
        case _:
            return Missing.UNKNOWN


def all_scalar(values: Iterable[Value]) -> bool:
    return all(isinstance(v, (str, int)) for v in values)


def _payload(protocol: str, name: str, packet: Packet) -> Value:
    match protocol:
        case "ip" | "ip6":
            if (protocol == "ip6") != packet.ipv6:
                return Missing.ABSENT
            fields = {"saddr": packet.source or Missing.UNKNOWN, "daddr": packet.destination}
            return fields.get(name) or (packet.protocol if name in ("protocol", "nexthdr") else Missing.UNKNOWN)
        case "th" | "tcp" | "udp" | "sctp" | "udplite" | "dccp":
            if packet.protocol not in PORTED or protocol not in ("th", packet.protocol):
                return Missing.ABSENT
            if name == "dport":
                return packet.destination_port
            if name == "sport":
                return packet.source_port or Missing.UNKNOWN
            return _tcp_flags(packet) if (protocol, name) == ("tcp", "flags") else Missing.UNKNOWN
        case "icmp" | "icmpv6":
            wanted = "ipv6-icmp" if protocol == "icmpv6" else "icmp"
            if packet.protocol != wanted:
                return Missing.ABSENT
            return ("echo-reply" if packet.reply else "echo-request") if name == "type" else Missing.UNKNOWN
    return Missing.UNKNOWN


def _tcp_flags(packet: Packet) -> frozenset[str]:
    if packet.reply:
        return frozenset({"syn", "ack"})
    return frozenset({"syn"} if packet.state in ("NEW", "UNTRACKED") else {"ack"})


def _meta(key: str, packet: Packet) -> Value:
    fields: dict[str, Value] = {
        "l4proto": packet.protocol,
        "nfproto": "ipv6" if packet.ipv6 else "ipv4",
        "protocol": "ip6" if packet.ipv6 else "ip",
        "mark": packet.mark,
        "iifname": Missing.UNKNOWN if packet.in_interface is None else packet.in_interface,
        "oifname": Missing.UNKNOWN if packet.out_interface is None else packet.out_interface,
        "pkttype": "host",
    }
    fields["iif"], fields["oif"] = fields["iifname"], fields["oifname"]
    return fields.get(key, Missing.UNKNOWN)


def _ct(key: str, direction: str, packet: Packet) -> Value:
    if key != "state" and not packet.tracked:
        return Missing.ABSENT
    match key:
        case "state":
            unknown = packet.before_conntrack and packet.state != "UNTRACKED"
            return frozenset({"invalid" if unknown else packet.state.lower()})
        case "status":
            return frozenset(
                name
                for name, is_so in (("dnat", packet.destination_rewritten), ("snat", packet.source_rewritten))
                if is_so
            )
        case "mark":
            return packet.ct_mark
        case "direction":
            return "reply" if packet.reply else "original"
    return Missing.UNKNOWN


def _fib(by: Sequence[str], result: str, packet: Packet, surroundings: Surroundings) -> Value:
    address = packet.destination if "daddr" in by else packet.source
    if result == "type":
        if not address:  # the node's own, whichever it is
            return "local"
        local = surroundings.is_local(address)
        return local if isinstance(local, Condition) else "local" if local else "unicast"
    if result in ("oif", "oifname") and "daddr" in by and (interface := surroundings.interface(address)):
        return interface
    return Missing.UNKNOWN


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "&": int.__and__,
    "|": int.__or__,
    "^": int.__xor__,
    "<<": lambda a, b: a << min(b, 32) & 0xFFFFFFFF,
    ">>": int.__rshift__,
}


def computed(operator: str, one: Value, two: Value) -> Value:
    if Missing.ABSENT in (one, two):
        return Missing.ABSENT
    if isinstance(one, int) and isinstance(two, int):
        return _OPERATORS[operator](one, two)
    if operator == "&" and isinstance(one, frozenset):
        wanted = two if isinstance(two, frozenset) else {two}
        return frozenset(w for w in one if w in wanted)
    return Missing.UNKNOWN


# --- comparing ------------------------------------------------------------------------------------------------------


def meets(value: Known, operator: str, wanted: n.Expression) -> bool | None:
    """None: not known, as `wanted` is not modelled. Sets with a name are the table's business."""
    match operator:
        case "!=":
            found = meets(value, "", wanted)
            return None if found is None else not found
        case "<" | ">" | "<=" | ">=":
            other = constant(wanted)
            if not isinstance(value, int) or not isinstance(other, int):
                return None
            return {"<": value < other, ">": value > other, "<=": value <= other, ">=": value >= other}[operator]
    if isinstance(value, frozenset):
        return _flags_meet(value, operator, wanted)
    return covers(wanted, value)


def _flags_meet(value: frozenset[str], operator: str, wanted: n.Expression) -> bool | None:
    other = constant(wanted)
    names = other if isinstance(other, frozenset) else frozenset({str(other)})
    if isinstance(other, Missing):
        return None
    if other == 0:
        return not value
    return value == names if operator == "==" else not value.isdisjoint(names)


def covers(wanted: n.Expression, value: Known) -> bool | None:
    """Whether `value` is `wanted`, or within it."""
    match wanted:
        case n.Concat(parts):
            if not isinstance(value, tuple) or len(parts) != len(value):
                return None
            answers = [covers(part, one) for part, one in zip(parts, value, strict=True)]
            return False if False in answers else None if None in answers else True
        case n.Any():
            return True
        case n.Prefix(address, length):
            return isinstance(value, str) and within(value, f"{address}/{length}")
        case n.Range(first, last):
            return _between(first, value, last)
        case n.Quoted(text) if text.endswith("*") and isinstance(value, str):
            return bool(value) and value.startswith(text[:-1])
        case n.Number(code) if isinstance(value, str):
            return PROTOCOLS.get(code) == value
        case n.Number() | n.Address() | n.Word() | n.Quoted():
            same = constant(wanted)
            return same in value if isinstance(value, frozenset) else same == value
    return None


def _between(first: n.Expression, value: Known, last: n.Expression) -> bool | None:
    one, other = constant(first), constant(last)
    if isinstance(one, int) and isinstance(other, int) and isinstance(value, int):
        return one <= value <= other
    if isinstance(one, str) and isinstance(other, str) and isinstance(value, str):
        try:
            return (":" in one) == (":" in value) and number(one) <= number(value) <= number(other)
        except ValueError:
            return None
    return None


def either(local: Condition, operator: str, wanted: n.Expression) -> Answer | None:
    """Of an address of which it is not known whether it is this node's: "local" or something else?"""
    found = meets("local", operator, wanted), meets("unicast", operator, wanted)
    match found:
        case (True, False):
            return local
        case (False, True):
            return inverted(local)
        case (bool(), bool()):
            return found[0]
    return None
