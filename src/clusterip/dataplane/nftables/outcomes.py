"""Where the rules send a packet: a walk through the hooks, every branch taken. Pure.

Knows the rules that this room writes; it walks them as values, and so also what `nft list table` has printed. A rule of
another kind is refused, never skipped: a skipped rule is a wrong answer.

Two differences to `services.route`, both kube-proxy's own, of packets that no Service claims: for a port that a
ClusterIP does not have they are refused, and for an address that no Service has, but the cluster's ranges hold, they
are dropped.
"""

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from clusterip.dataplane.nftables.compile import Piece
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.delta import program
from clusterip.dataplane.node import Host
from clusterip.errors import ClusterIPError
from clusterip.rulesets.nft import values as v
from clusterip.services.route import Delivered, Dropped, Outcome, Outcomes, Packet, Passed, Rejected, Source

Value: TypeAlias = tuple[str | int, ...]  # of an expression: addresses and words as text


class NotModelled(ClusterIPError):
    """A rule that the walk does not know."""


@dataclass(frozen=True, slots=True)
class _Flow:
    """A packet on its way."""

    packet: Packet
    address: str  # destination now
    port: int
    interface: str  # it came in by; "": it began here
    mark: int = 0
    rewritten: bool = False
    masqueraded: bool = False


class _End(Enum):
    ACCEPT = "accept"
    DROP = "drop"
    REJECT = "reject"
    FELL_THROUGH = "fell through"  # the end of a chain


def outcomes(pieces: Collection[Piece], config: Config, packet: Packet, host: Host) -> Outcomes:
    """Every outcome that the first packet of a connection may have."""
    return walk(program(pieces, config), packet, host)


def walk(table: v.Table, packet: Packet, host: Host) -> Outcomes:
    """`outcomes` for a table at hand. Raises NotModelled."""
    interface = {Source.POD: host.pod_interface, Source.NODE: "", Source.OUTSIDE: host.uplink}[packet.source]
    return frozenset(_Walker(table, host).outcomes(_Flow(packet, packet.address, packet.port, interface)))


class _Walker:
    def __init__(self, table: v.Table, host: Host) -> None:
        self.table = table
        self.host = host
        self.sets = {name: _by_key(found) for name, found in table.sets.items()}
        self.remembers = _remembers(table)

    def outcomes(self, start: _Flow) -> Iterator[Outcome]:
        from_node = start.packet.source is Source.NODE
        for end, flow in self._hook("nat", "output" if from_node else "prerouting", start):
            if end is _End.DROP:
                yield Dropped()
            else:
                yield from self._filtered(flow, from_node)

    def _filtered(self, start: _Flow, from_node: bool) -> Iterator[Outcome]:
        here = _is_local(start.address, self.host)
        hooks = (["output"] if from_node else []) + (["input"] if here else [] if from_node else ["forward"])
        flows = [start]
        for hook in hooks:
            ended = [pair for flow in flows for pair in self._hook("filter", hook, flow)]
            if any(end is _End.DROP for end, _ in ended):
                yield Dropped()
            if any(end is _End.REJECT for end, _ in ended):
                yield Rejected()
            flows = [flow for end, flow in ended if end in (_End.ACCEPT, _End.FELL_THROUGH)]
        for flow in flows:
            stays = here and not from_node  # what does not leave the node meets no postrouting
            for _, last in [(None, flow)] if stays else self._hook("nat", "postrouting", flow):
                yield Delivered(last.address, last.port, last.masqueraded) if last.rewritten else Passed()

    def _hook(self, kind: str, hook: str, flow: _Flow) -> Iterator[tuple[_End, _Flow]]:
        for chain in self.table.chains.values():
            if chain.hook and (chain.hook.type, chain.hook.hook) == (kind, hook):
                yield from self._from(chain.rules, 0, flow)
                return
        yield _End.FELL_THROUGH, flow

    def _from(self, rules: Sequence[v.Rule], first: int, flow: _Flow) -> Iterator[tuple[_End, _Flow]]:
        if first == len(rules):
            yield _End.FELL_THROUGH, flow
            return
        yield from self._judge(rules, first, 0, flow)

    def _judge(self, rules: Sequence[v.Rule], index: int, at: int, flow: _Flow) -> Iterator[tuple[_End, _Flow]]:
        """From the statement `at` of the rule `index` on."""
        if at == len(rules[index].statements):
            yield from self._from(rules, index + 1, flow)
            return
        statement = rules[index].statements[at]
        match statement:
            case v.Match():
                answer = self._answer(statement, flow)
                if answer is not True:
                    yield from self._from(rules, index + 1, flow)
                if answer is not False:
                    yield from self._judge(rules, index, at + 1, flow)
            case v.VerdictMap(key, v.SetName(name)):
                (value,) = self._values(key, flow)
                element = self.sets[name].get(value)
                if element is None:
                    yield from self._judge(rules, index, at + 1, flow)
                else:
                    yield from self._obey(element.value, rules, index, flow)
            case v.Mangle(v.Meta("mark"), v.Binary(operator, v.Meta("mark"), v.Number(bits))):
                mark = flow.mark | bits if operator == "|" else flow.mark ^ bits
                yield from self._judge(rules, index, at + 1, replace(flow, mark=mark))
            case v.Update():
                yield from self._judge(rules, index, at + 1, flow)
            case v.Nat():
                yield from self._translated(statement, rules, index, flow)
            case v.Reject():
                yield _End.REJECT, flow
            case _:
                yield from self._obey(statement, rules, index, flow)

    def _obey(self, verdict: object, rules: Sequence[v.Rule], index: int, flow: _Flow) -> Iterator[tuple[_End, _Flow]]:
        match verdict:
            case v.Accept():
                yield _End.ACCEPT, flow
            case v.Drop():
                yield _End.DROP, flow
            case v.Goto(chain):
                yield from self._from(self.table.rules(chain), 0, flow)
            case v.Jump(chain):
                for end, inner in self._from(self.table.rules(chain), 0, flow):
                    if end is _End.FELL_THROUGH:
                        yield from self._from(rules, index + 1, inner)
                    else:
                        yield end, inner
            case _:
                raise NotModelled(f"{verdict}: not a verdict that the proxy writes")

    def _translated(self, nat: v.Nat, rules: Sequence[v.Rule], index: int, flow: _Flow) -> Iterator[tuple[_End, _Flow]]:
        match nat.kind, nat.address, nat.port:
            case "masquerade", None, None:
                yield _End.ACCEPT, replace(flow, masqueraded=True)
            case "dnat", v.Address(text), v.Number(port):
                yield _End.ACCEPT, replace(flow, address=text, port=port, rewritten=True)
            case "dnat", v.Lookup(key, v.SetName(name)), None:
                for value in self._values(key, flow):
                    element = self.sets[name].get(value)
                    if element is None:
                        yield from self._from(rules, index + 1, flow)
                        continue
                    address, number = _value(element.value)
                    yield _End.ACCEPT, replace(flow, address=str(address), port=int(number), rewritten=True)
            case _:
                raise NotModelled(f"{nat}: not a translation that the proxy writes")

    def _answer(self, match: v.Match, flow: _Flow) -> bool | None:
        """None: it may be so or not."""
        negated = match.operator == "!="
        match match.left, match.right:
            case _, v.SetName(name):
                if "dynamic" in self.table.sets[name].flags:
                    remembered = flow.packet.remembered
                    return remembered is not None and self.remembers[name] == (remembered.address, remembered.port)
                (value,) = self._values(match.left, flow)
                return (value in self.sets[name]) != negated
            case v.Payload(), v.Address(text) | v.Prefix(text):
                length = match.right.length if isinstance(match.right, v.Prefix) else None
                (value,) = self._values(match.left, flow)
                return _within(str(value[0]), text, length) != negated
            case v.Meta("iifname"), v.Quoted(pattern):
                return _named(flow.interface, pattern) != negated
            case v.Meta("l4proto"), v.Word(word):
                return (flow.packet.protocol.lower() == word) != negated
            case v.Fib((by,), "type"), v.Word("local"):
                asked = flow.packet.source_address if by == "saddr" else flow.address
                return _is_local(asked, self.host) != negated
            case v.Ct("state"), v.Word(word):
                return word == "new"
            case v.Ct("status"), v.Word("dnat"):
                return flow.rewritten
            case v.Binary("&", v.Meta("mark"), v.Number(bits)), v.Number(wanted):
                return (flow.mark & bits == wanted) != negated
            case v.Numgen("random", modulus, 0), v.Number():
                return None if modulus > 1 else True
            case _:
                raise NotModelled(f"{match}: not a match that the proxy writes")

    def _values(self, expression: v.Expression, flow: _Flow) -> Iterator[Value]:
        match expression:
            case v.Concat(parts):
                for combined in product(*(tuple(self._values(part, flow)) for part in parts)):
                    yield sum(combined, ())
            case v.Payload(_, "saddr"):
                yield (flow.packet.source_address,)
            case v.Payload(_, "daddr"):
                yield (flow.address,)
            case v.Payload(_, "dport"):
                yield (flow.port,)
            case v.Meta("l4proto"):
                yield (flow.packet.protocol.lower(),)
            case v.Numgen("random", modulus, 0):
                yield from ((number,) for number in range(modulus))
            case _:
                raise NotModelled(f"{expression}: not an expression that the proxy writes")


def _remembers(table: v.Table) -> dict[str, tuple[str, int]]:
    """The backend whose clients a set holds, by the set's name: a chain that notes a client sends it there."""
    found = {}
    for chain in table.chains.values():
        statements = [s for rule in chain.rules for s in rule.statements]
        for noted in (s for s in statements if isinstance(s, v.Update)):
            for to in statements:
                match to:
                    case v.Nat("dnat", v.Address(address), v.Number(port)):
                        found[noted.set] = (address, port)
    return found


def _by_key(found: v.Set) -> dict[Value, v.Element]:
    return {_value(element.key): element for element in found.elements}


def _value(expression: object) -> Value:
    match expression:
        case v.Concat(parts):
            return sum((_value(part) for part in parts), ())
        case v.Address(text) | v.Word(text):
            return (text,)
        case v.Number(number):
            return (number,)
        case _:
            raise NotModelled(f"{expression}: not a value that the proxy writes")


def _named(interface: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return bool(interface) and interface.startswith(pattern[:-1])
    return interface == pattern


@lru_cache(maxsize=1 << 14)
def _within(address: str, network: str, length: int | None) -> bool:
    wanted = ipaddress.ip_network(network if length is None else f"{network}/{length}")
    return ipaddress.ip_address(address) in wanted


def _is_local(address: str, host: Host) -> bool:
    return address in host.addresses or ipaddress.ip_address(address).is_loopback
