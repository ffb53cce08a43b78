"""Where the rules send a packet: a walk through the hooks. Pure.

Knows the rules that this room writes; it walks them as values, and so also what `nft list table` has printed.

Two differences to `services.route`, both kube-proxy's own, of packets that no Service claims: for a port that a
ClusterIP does not have they are refused, and for an address that no Service has, but the cluster's ranges hold, they
are dropped.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from clusterip.dataplane.flow import End, Flow, NotModelled, is_local, named, through, within
from clusterip.dataplane.nftables.compile import Piece
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.delta import program
from clusterip.dataplane.node import Host
from clusterip.rulesets.nft import values as v
from clusterip.services.route import Outcomes, Packet

Value: TypeAlias = tuple[str | int, ...]  # of an expression: addresses and words as text


def outcomes(pieces: Collection[Piece], config: Config, packet: Packet, host: Host) -> Outcomes:
    """Every outcome that the first packet of a connection may have."""
    return walk(program(pieces, config), packet, host)


def walk(table: v.Table, packet: Packet, host: Host) -> Outcomes:
    """`outcomes` for a table at hand. Raises NotModelled."""
    return frozenset(through(_Walker(table, host).hook, packet, host))


class _Walker:
    def __init__(self, table: v.Table, host: Host) -> None:
        self.table = table
        self.host = host
        self.sets = {name: _by_key(found) for name, found in table.sets.items()}
        self.remembers = _remembers(table)

    def hook(self, kind: str, hook: str, flow: Flow) -> Iterator[tuple[End, Flow]]:
        for chain in self.table.chains.values():
            if chain.hook and (chain.hook.type, chain.hook.hook) == (kind, hook):
                yield from self._from(chain.rules, 0, flow)
                return
        yield End.FELL_THROUGH, flow

    def _from(self, rules: Sequence[v.Rule], first: int, flow: Flow) -> Iterator[tuple[End, Flow]]:
        if first == len(rules):
            yield End.FELL_THROUGH, flow
            return
        yield from self._judge(rules, first, 0, flow)

    def _judge(self, rules: Sequence[v.Rule], index: int, at: int, flow: Flow) -> Iterator[tuple[End, Flow]]:
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
                yield End.REJECT, flow
            case _:
                yield from self._obey(statement, rules, index, flow)

    def _obey(self, verdict: object, rules: Sequence[v.Rule], index: int, flow: Flow) -> Iterator[tuple[End, Flow]]:
        match verdict:
            case v.Accept():
                yield End.ACCEPT, flow
            case v.Drop():
                yield End.DROP, flow
            case v.Goto(chain):
                yield from self._from(self.table.rules(chain), 0, flow)
            case v.Jump(chain):
                for end, inner in self._from(self.table.rules(chain), 0, flow):
                    if end is End.FELL_THROUGH:
                        yield from self._from(rules, index + 1, inner)
                    else:
                        yield end, inner
            case _:
                raise NotModelled(f"{verdict}: not a verdict that the proxy writes")

    def _translated(self, nat: v.Nat, rules: Sequence[v.Rule], index: int, flow: Flow) -> Iterator[tuple[End, Flow]]:
        match nat.kind, nat.address, nat.port:
            case "masquerade", None, None:
                yield End.ACCEPT, replace(flow, masqueraded=True)
            case "dnat", v.Address(text), v.Number(port):
                yield End.ACCEPT, replace(flow, address=text, port=port, rewritten=True)
            case "dnat", v.Lookup(key, v.SetName(name)), None:
                for value in self._values(key, flow):
                    element = self.sets[name].get(value)
                    if element is None:
                        yield from self._from(rules, index + 1, flow)
                        continue
                    address, number = _value(element.value)
                    yield End.ACCEPT, replace(flow, address=str(address), port=int(number), rewritten=True)
            case _:
                raise NotModelled(f"{nat}: not a translation that the proxy writes")

    def _answer(self, match: v.Match, flow: Flow) -> bool | None:
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
                network = f"{text}/{match.right.length}" if isinstance(match.right, v.Prefix) else text
                (value,) = self._values(match.left, flow)
                return within(str(value[0]), network) != negated
            case v.Meta("iifname"), v.Quoted(pattern):
                return named(flow.interface, pattern, "*") != negated
            case v.Meta("l4proto"), v.Word(word):
                return (flow.packet.protocol.lower() == word) != negated
            case v.Fib((by,), "type"), v.Word("local"):
                asked = flow.packet.source_address if by == "saddr" else flow.address
                return is_local(asked, self.host) != negated
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

    def _values(self, expression: v.Expression, flow: Flow) -> Iterator[Value]:
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
