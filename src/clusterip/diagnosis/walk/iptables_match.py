"""What a packet answers to each match of iptables."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from clusterip.diagnosis.packet import ICMP, Packet
from clusterip.diagnosis.walk.branch import Answer, Chance, Condition, inverted
from clusterip.diagnosis.walk.sets import Sets, in_set
from clusterip.diagnosis.walk.surroundings import Surroundings, is_address, is_network, within
from clusterip.rulesets.iptables import match_text
from clusterip.rulesets.iptables import values as v

_NUMBERS = {"1": "icmp", "6": "tcp", "17": "udp", "58": "ipv6-icmp", "132": "sctp", "icmpv6": "ipv6-icmp"}
_ECHO = frozenset({"8", "8/0", "echo-request", "128", "128/0", "any", "255"})


@dataclass(frozen=True, slots=True)
class Matching:
    surroundings: Surroundings
    ipsets: Sets

    def answer(self, match: v.Match, packet: Packet, rule: str) -> Answer:
        """`rule` names where the match stands: two unmodelled ones are two questions."""
        found = _ANSWERS[type(match)](self, match, packet, rule)
        return inverted(found) if getattr(match, "negated", False) else found

    def source(self, match: v.Source, packet: Packet, rule: str) -> Answer:
        if not all(map(is_network, match.network.split(","))):
            return _unmodelled(msgspec.structs.replace(match, negated=False), rule)
        if not packet.source:
            return self.surroundings.is_own_within(match.network)
        return _in_networks(packet.source, match.network)

    def destination(self, match: v.Destination, packet: Packet, rule: str) -> Answer:
        if not all(map(is_network, match.network.split(","))):
            return _unmodelled(msgspec.structs.replace(match, negated=False), rule)
        return _in_networks(packet.destination, match.network)

    def came_in(self, match: v.InInterface, packet: Packet, rule: str) -> Answer:
        return _interface(packet.in_interface, match.pattern, "comes in by")

    def goes_out(self, match: v.OutInterface, packet: Packet, rule: str) -> Answer:
        return _interface(packet.out_interface, match.pattern, "goes out by")

    def protocol(self, match: v.IPProtocol, packet: Packet, rule: str) -> Answer:
        name = _NUMBERS.get(match.name, match.name)
        return name in ("all", "0", "ip") or name == packet.protocol

    def always(self, match: v.Match, packet: Packet, rule: str) -> Answer:
        return True

    def state(self, match: v.ConnState, packet: Packet, rule: str) -> Answer:
        known = {"INVALID" if packet.before_conntrack and packet.state != "UNTRACKED" else packet.state}
        if match.module == "conntrack" and packet.tracked:
            known |= {"DNAT"} if packet.destination_rewritten else set()
            known |= {"SNAT"} if packet.source_rewritten else set()
        return not known.isdisjoint(match.states)

    def mark(self, match: v.Mark, packet: Packet, rule: str) -> Answer:
        return packet.mark & match.mask == match.value

    def random(self, match: v.Random, packet: Packet, rule: str) -> Answer:
        return Chance(Fraction(match.numerator, 2**31))

    def nth(self, match: v.Nth, packet: Packet, rule: str) -> Answer:
        return Chance(Fraction(1, match.every), long_run=True)

    def recent(self, match: v.Recent, packet: Packet, rule: str) -> Answer:
        if match.action == "set":
            return True
        age = f" within {match.seconds} s" if match.seconds else ""
        return Condition(
            f"recent {match.name} {packet.source if match.side != 'rdest' else packet.destination} {match.hitcount}",
            "affinity",
            f"the client is in list {match.name}{age}",
            f"the client is not in list {match.name}{age}",
        )

    def address_type(self, match: v.AddrType, packet: Packet, rule: str) -> Answer:
        source = self._type(match.source, packet.source, match, rule)
        destination = self._type(match.destination, packet.destination, match, rule)
        one = inverted(source) if match.source_negated else source
        two = inverted(destination) if match.destination_negated else destination
        if not match.source:
            return two
        if not match.destination:
            return one
        if one is False or two is False:
            return False
        return two if one is True else one if two is True else _unmodelled(match, rule)

    def _type(self, wanted: str, address: str, match: v.AddrType, rule: str) -> Answer:
        if not wanted:
            return True
        if match.limit:
            return _unmodelled(match, rule)
        if not address:  # the node's own, whichever it is
            return "LOCAL" in wanted.split(",")
        types = set(wanted.split(","))
        special = _special(address)
        if special:
            return special in types
        local = self.surroundings.is_local(address)
        if "LOCAL" in types and "UNICAST" in types:
            return True
        if "LOCAL" in types:
            return local
        return inverted(local) if "UNICAST" in types else False

    def in_set(self, match: v.InSet, packet: Packet, rule: str) -> Answer:
        return in_set(self.ipsets, match.name, match.directions, packet)

    def ports(self, match: v.Ports, packet: Packet, rule: str) -> Answer:
        if match.protocol != packet.protocol:
            return False
        answers: list[Answer] = []
        if match.destination:
            inside = match.destination.first <= packet.destination_port <= match.destination.last
            answers.append(inside != match.destination_negated)
        if match.source:
            answers.append(_source_port(packet, match.source, match.source_negated))
        if match.flag_mask:
            answers.append(_tcp_flags(match, packet) != match.flags_negated)
        if any(a is False for a in answers):
            return False
        return next((a for a in answers if a is not True), True)

    def many_ports(self, match: v.MultiPort, packet: Packet, rule: str) -> Answer:
        fits = any(r.first <= packet.destination_port <= r.last for r in match.ports)
        if match.side == "dports" or (match.side == "ports" and fits):
            return fits
        if packet.source_port:
            return any(r.first <= packet.source_port <= r.last for r in match.ports)
        texts = ",".join(f"{r.first}-{r.last}" for r in match.ports)
        return Condition(
            f"sport {texts}", "unknown", f"the source port is in {texts}", f"the source port is not {texts}"
        )

    def bridge_port(self, match: v.PhysDev, packet: Packet, rule: str) -> Answer:
        """These packets are routed: none is bridged from port to port, and none has yet a port to go out by."""
        if match.is_bridged or match.is_out:
            return False
        if match.goes_out:
            return match.goes_out_negated
        asks = match.came_in or match.is_in is not None
        if not asks:
            return True
        if packet.in_interface == "":
            return match.is_in is False or (bool(match.came_in) and match.came_in_negated)
        return _unmodelled(match, rule)

    def limit(self, match: v.Limit, packet: Packet, rule: str) -> Answer:
        return Condition(
            f"limit {rule}",
            "unknown",
            f"the limit of {match.rate} is not used up",
            f"the limit of {match.rate} is used up",
        )

    def other(self, match: v.OtherMatch, packet: Packet, rule: str) -> Answer:
        read = _OTHERS.get(match.module)
        try:
            found = read(match.words, packet) if read else None
        except ValueError:  # a number or an address that is none
            found = None
        return found if found is not None else _unmodelled(match, rule)


_ANSWERS: dict[type, Callable[[Matching, Any, Packet, str], Answer]] = {
    v.Source: Matching.source,
    v.Destination: Matching.destination,
    v.InInterface: Matching.came_in,
    v.OutInterface: Matching.goes_out,
    v.IPProtocol: Matching.protocol,
    v.Comment: Matching.always,
    v.ConnState: Matching.state,
    v.Mark: Matching.mark,
    v.Random: Matching.random,
    v.Nth: Matching.nth,
    v.Recent: Matching.recent,
    v.AddrType: Matching.address_type,
    v.NfAcct: Matching.always,
    v.InSet: Matching.in_set,
    v.Ports: Matching.ports,
    v.MultiPort: Matching.many_ports,
    v.PhysDev: Matching.bridge_port,
    v.Limit: Matching.limit,
    v.OtherMatch: Matching.other,
}


def _unmodelled(match: v.Match, rule: str) -> Condition:
    text = match_text(match)
    return Condition(f"{rule} {text}", "unmodelled", f"{text} is true", f"{text} is not true", rule)


def _in_networks(address: str, networks: str) -> bool:
    if "," not in networks:
        return within(address, networks)
    return any(within(address, network) for network in networks.split(","))


def _interface(name: str | None, pattern: str, how: str) -> Answer:
    if pattern == "+":
        return True
    if name is None and pattern == "lo":
        return False  # what is not known is where a packet of others comes from or goes to
    if name is None:
        return Condition(
            f"{how} {pattern}", "unknown", f"it {how} {pattern}", f"it {how} another interface than {pattern}"
        )
    if pattern.endswith("+"):
        return bool(name) and name.startswith(pattern[:-1])
    return name == pattern


@lru_cache(maxsize=1 << 12)
def _special(address: str) -> str:
    if not is_address(address):
        return ""
    found = ipaddress.ip_address(address)
    if found.is_multicast:
        return "MULTICAST"
    return "BROADCAST" if address == "255.255.255.255" else "UNSPEC" if found.is_unspecified else ""


def _source_port(packet: Packet, ports: v.PortRange, negated: bool) -> Answer:
    if packet.source_port:
        return (ports.first <= packet.source_port <= ports.last) != negated
    text = f"{ports.first}-{ports.last}" if ports.last > ports.first else f"{ports.first}"
    found = Condition(f"sport {text}", "unknown", f"the source port is {text}", f"the source port is not {text}")
    return inverted(found) if negated else found


def _tcp_flags(match: v.Ports, packet: Packet) -> bool:
    """The first packet of a connection has SYN alone; of a reply SYN and ACK; any other ACK."""
    has = {"SYN", "ACK"} if packet.reply else {"SYN"} if packet.state in ("NEW", "UNTRACKED") else {"ACK"}
    every = {"FIN", "SYN", "RST", "PSH", "ACK", "URG"}
    mask = every if match.flag_mask == "ALL" else set(match.flag_mask.split(","))
    wanted = every if match.flags == "ALL" else set() if match.flags == "NONE" else set(match.flags.split(","))
    return has & mask == wanted


def _icmp(words: tuple[str, ...], packet: Packet) -> Answer | None:
    negated = words[:1] == ("!",)
    match words[negated:]:
        case ("--icmp-type" | "--icmpv6-type", kind):
            return packet.protocol in ICMP and (kind in _ECHO) != negated
        case ():
            return packet.protocol in ICMP
    return None


def _connmark(words: tuple[str, ...], packet: Packet) -> Answer | None:
    if not packet.tracked:
        return False
    negated = words[:1] == ("!",)
    match words[negated:]:
        case ("--mark", text):
            value, _, mask = text.partition("/")
            return (packet.ct_mark & int(mask or "0xffffffff", 0) == int(value, 0)) != negated
    return None


def _ranges(words: tuple[str, ...], packet: Packet) -> Answer | None:
    negated = words[:1] == ("!",)
    match words[negated:]:
        case ("--src-range" | "--dst-range" as side, text) if "-" in text:
            address = packet.source if side == "--src-range" else packet.destination
            first, _, last = text.partition("-")
            if address and is_address(first) and is_address(last):
                return (
                    ipaddress.ip_address(first).packed
                    <= ipaddress.ip_address(address).packed
                    <= ipaddress.ip_address(last).packed
                ) != negated
    return None


def _conntrack(words: tuple[str, ...], packet: Packet) -> Answer | None:
    if not packet.tracked:
        return False
    negated = words[:1] == ("!",)
    match words[negated:]:
        case ("--ctstatus", states) if set(states.split(",")) <= {"DNAT", "SNAT"}:
            known = {"DNAT": packet.destination_rewritten, "SNAT": packet.source_rewritten}
            return any(known[s] for s in states.split(",")) != negated
        case ("--ctdir", direction):
            return ((direction == "REPLY") == packet.reply) != negated
    return None


def _packet_type(words: tuple[str, ...], packet: Packet) -> Answer | None:
    negated = words[:1] == ("!",)
    match words[negated:]:
        case ("--pkt-type", kind):
            return (kind == "unicast") != negated
    return None


_OTHERS: dict[str, Callable[[tuple[str, ...], Packet], Answer | None]] = {
    "icmp": _icmp,
    "icmp6": _icmp,
    "connmark": _connmark,
    "iprange": _ranges,
    "conntrack": _conntrack,
    "pkttype": _packet_type,
}
