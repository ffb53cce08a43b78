"""Sets of packets against the rules of one nftables table."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.chain import Cell, Judged
from clusterip.diagnosis.verify.flow import Flow, Memory, Socket, among, as_packet, divided, lost, remembering, swapped
from clusterip.diagnosis.verify.interfaces import came_in
from clusterip.diagnosis.verify.literals import Literals
from clusterip.diagnosis.verify.sources import Sources, split
from clusterip.diagnosis.walk.branch import Condition, End
from clusterip.diagnosis.walk.chain import NEXT, Act, Into
from clusterip.diagnosis.walk.nft import NftTable
from clusterip.diagnosis.walk.nft_sets import Index, by_name
from clusterip.diagnosis.walk.nft_values import Known, Missing, Value, all_scalar, constant, field, meets
from clusterip.rulesets.nft import values as n
from clusterip.rulesets.nft.text import rule_text, statement_text

_Where: TypeAlias = tuple[str, int]  # chain, rule
_Results: TypeAlias = list[tuple[Flow, Act | None]]  # None: on with the next statement
_SADDR = (n.Payload("ip", "saddr"), n.Payload("ip6", "saddr"))
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> int:
    """Of "2h59m58s"; milliseconds count for nothing."""
    return sum(int(count) * _UNITS[unit] for count, unit in re.findall(r"(\d+)([dhms])(?![a-z])", text))


class NftSets:
    def __init__(self, of: NftTable) -> None:
        self._of = of
        self._sets = of.rules.sets
        self._indexes: dict[str, Index] = {}
        self._sources: dict[tuple[str, int], dict[object, Sources]] = {}
        self._constant: dict[str, Sources] = {}

    @property
    def program(self) -> str:
        return self._of.program

    @property
    def table(self) -> str:
        return self._of.table

    def collect(self, literals: Literals) -> None:
        literals.add_nft(id(self), self._of.rules)

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        return self._of.applicable(chain, packet)

    def direct(self, chain: str, cell: Cell, flow: Flow, above: tuple[str, ...]) -> None:
        return None

    def judge(self, chain: str, rule: int, cell: Cell, flow: Flow) -> list[Judged]:
        pending, judged = [flow], list[Judged]()
        for statement in self._of.rules.chains[chain].rules[rule].statements:
            still: list[Flow] = []
            for one in pending:
                for after, act in self._carried_out(statement, cell, one, (chain, rule)):
                    if act is None:
                        still.append(after)
                    else:
                        judged.append((after, act))
            pending = still
            if not pending:
                break
        return [*((one, NEXT) for one in pending), *judged]

    # --- statements ---

    def _carried_out(self, statement: n.Statement, cell: Cell, flow: Flow, where: _Where) -> _Results:
        match statement:
            case n.Match():
                return _asked(self._matched(statement, cell, flow, where))
            case n.VerdictMap(key, mapping):
                return self._mapped(key, mapping, cell, flow, where)
            case n.Accept() | n.Drop() | n.Return() | n.Continue() | n.Jump() | n.Goto():
                return [(flow, _act(statement))]
            case n.Reject():
                return [(flow, End.REJECT)]
            case n.Nat(kind="dnat"):
                return self._rewritten(statement, cell, flow, where)
            case n.Nat(kind="masquerade" | "snat"):
                return [(replace(flow, masqueraded=True), End.ACCEPT)]
            case n.Mangle(n.Meta("mark"), value):
                found = field(value, as_packet(cell.packet, flow), self._of.surroundings)
                return [(replace(flow, mark=found), None)] if isinstance(found, int) else [self._lost(flow, where)]
            case n.Mangle(n.Ct("mark"), value):
                found = field(value, as_packet(cell.packet, flow), self._of.surroundings)
                return [(replace(flow, ct_mark=found), None)] if isinstance(found, int) else [self._lost(flow, where)]
            case n.Update(operation="add" | "update", set=name, key=key, statements=()) if key in _SADDR:
                return [(replace(flow, noted=(*flow.noted, name)), None)]
            case n.Counter() | n.Log() | n.Update(statements=()):
                return [(flow, None)]
            case n.NoTrack():
                return [(replace(flow, tracked=False), None)]
            case n.Limit() | n.Update():
                return _asked(divided(flow, self._unknown(statement, where)))
            case n.Xt("match", _, _):
                return _asked(divided(flow, self._unknown(statement, where)))
            case n.Nat() | n.Mangle() | n.Xt() | n.OtherStatement():
                return [self._lost(flow, where)]
            case _:
                assert_never(statement)

    def _lost(self, flow: Flow, where: _Where) -> tuple[Flow, Act]:
        text = rule_text(self._of.rules.chains[where[0]].rules[where[1]])
        return lost(flow, f"{self.table} {where[0]} rule {where[1] + 1}", f"{text!r}"), End.LOST

    def _unknown(self, statement: n.Statement, where: _Where) -> Condition:
        text = statement_text(statement)
        place = f"{self.table} {where[0]} rule {where[1] + 1}"
        return Condition(f"{place} {text}", "unmodelled", f'"{text}" holds', f'"{text}" does not hold', place)

    # --- matches ---

    def _matched(self, match: n.Match, cell: Cell, flow: Flow, where: _Where) -> tuple[Flow | None, Flow | None]:
        match match.left:
            case n.Payload("ip" | "ip6" as family, "saddr") if match.operator in ("", "==", "!="):
                if (family == "ip6") != cell.clients.ipv6:
                    return None, flow
                return swapped(match.operator == "!=", self._from(match, cell, flow, where))
            case n.Concat(parts) if any(p in _SADDR for p in parts) and isinstance(match.right, n.SetName):
                return swapped(match.operator == "!=", self._row(parts, match, cell, flow, where))
            case n.Fib(by, "type") if "saddr" in by:
                local = meets("local", match.operator, match.right)
                if local is not None and meets("unicast", match.operator, match.right) is not local:
                    return swapped(not local, among(flow, *split(flow.sources, cell.clients.node)))
            case n.Numgen(_, modulus, offset):
                return self._by_lot(match, range(offset, offset + modulus), cell, flow, where)
            case n.Meta("iifname" | "iif") if match.operator in ("", "==", "!="):
                return self._interface(match, cell, flow, where)
        return self._as_told(match, cell, flow, where)

    def _by_lot(
        self, match: n.Match, drawn: range, cell: Cell, flow: Flow, where: _Where
    ) -> tuple[Flow | None, Flow | None]:
        answers = [self._meets(match, value, cell) for value in drawn]
        if None in answers or not answers:
            return divided(flow, self._unknown(match, where))
        part, rest = flow.weight.divided(answers.count(True), len(answers))
        return replace(flow, weight=part) if part else None, replace(flow, weight=rest) if rest else None

    def _meets(self, match: n.Match, value: Known, cell: Cell) -> bool | None:
        if not isinstance(match.right, (n.SetName, n.Elements)):
            return meets(value, match.operator, match.right)
        index = self._index(match.right, cell)
        return None if index is None else (index.find(value) is not None) == (match.operator != "!=")

    def _as_told(self, match: n.Match, cell: Cell, flow: Flow, where: _Where) -> tuple[Flow | None, Flow | None]:
        """What does not hang on the source is answered as for one packet."""
        value = self._value(match.left, cell, flow)
        if value is Missing.ABSENT:
            return None, flow
        if isinstance(value, (Missing, Condition)):
            return divided(flow, self._unknown(match, where))
        found = self._meets(match, value, cell)
        return divided(flow, self._unknown(match, where) if found is None else found)

    def _from(self, match: n.Match, cell: Cell, flow: Flow, where: _Where) -> tuple[Flow | None, Flow | None]:
        named = self._sets.get(match.right.name) if isinstance(match.right, n.SetName) else None
        if named is not None and "dynamic" in named.flags:
            return remembering(flow, Memory(named.name, seconds(named.timeout)))
        wanted = self._networks(match.right, cell)
        if wanted is None:
            return divided(flow, self._unknown(match, where))
        return among(flow, *split(flow.sources, wanted))

    def _networks(self, right: n.Expression, cell: Cell) -> Sources | None:
        """None: it is none that can be read."""
        if isinstance(right, n.SetName):
            kept = self._constant.get(right.name)
            if kept is None and right.name in self._sets:
                found = self._networks(n.Elements(self._sets[right.name].elements), cell)
                if found is None:
                    return None
                kept = self._constant[right.name] = found
            return kept
        keys = [e.key for e in right.elements] if isinstance(right, n.Elements) else [right]
        texts = [_network(key) for key in keys]
        return None if "" in texts else cell.clients.within(texts)

    def _row(
        self, parts: Sequence[n.Expression], match: n.Match, cell: Cell, flow: Flow, where: _Where
    ) -> tuple[Flow | None, Flow | None]:
        """ "ip saddr . ip daddr . th dport @set": which sources are in it beside the rest of the row."""
        at = next(i for i, part in enumerate(parts) if part in _SADDR)
        rest = [self._value(p, cell, flow) for i, p in enumerate(parts) if i != at]
        if Missing.ABSENT in rest:
            return None, flow
        named = self._sets.get(match.right.name) if isinstance(match.right, n.SetName) else None
        if named is None or "dynamic" in named.flags or not all_scalar(rest):
            return divided(flow, self._unknown(match, where))
        index = self._sources.get((named.name, at))
        if index is None:
            found = _by_rest(named, at, cell)
            if found is None:
                return divided(flow, self._unknown(match, where))
            index = self._sources[named.name, at] = found
        return among(flow, *split(flow.sources, index.get(tuple(rest), ())))

    def _interface(self, match: n.Match, cell: Cell, flow: Flow, where: _Where) -> tuple[Flow | None, Flow | None]:
        match match.right:
            case n.Quoted(name):
                pattern = f"{name[:-1]}+" if name.endswith("*") else name
                return swapped(match.operator == "!=", came_in(pattern, cell, flow))
        return divided(flow, self._unknown(match, where))

    def _value(self, expression: n.Expression, cell: Cell, flow: Flow) -> Value:
        if isinstance(expression, n.Concat):
            values = [self._value(p, cell, flow) for p in expression.parts]
            if Missing.ABSENT in values:
                return Missing.ABSENT
            return tuple(v for v in values if isinstance(v, (str, int))) if all_scalar(values) else Missing.UNKNOWN
        return field(expression, as_packet(cell.packet, flow), self._of.surroundings)

    def _index(self, where: n.SetName | n.Elements, cell: Cell) -> Index | None:
        """None: the set is not in the table."""
        if isinstance(where, n.Elements):
            return Index(where.elements)
        cell.asked.add((id(self), f"@{where.name}"))
        found = self._indexes.get(where.name)
        if found is None and where.name in self._sets:
            named = self._sets[where.name]
            found = self._indexes[where.name] = Index(by_name(named.elements, named.types))
        return found

    # --- maps ---

    def _drawn(self, key: n.Expression, cell: Cell, flow: Flow) -> list[tuple[Flow, Value]]:
        """Every value of `key`, with its part of the flow."""
        match key:
            case n.Numgen(_, modulus, offset):
                part = flow.weight.divided(1, modulus)[0] if modulus > 1 else flow.weight
                drawn = replace(flow, weight=part) if part else flow
                return [(drawn, offset + i) for i in range(modulus)]
            case n.Concat(parts) if any(isinstance(p, n.Numgen) for p in parts):
                rows: list[tuple[Flow, tuple[Value, ...]]] = [(flow, ())]
                for part_ in parts:
                    rows = [(f, (*row, v)) for one, row in rows for f, v in self._drawn(part_, cell, one)]
                return [(f, _joined(row)) for f, row in rows]
        return [(flow, self._value(key, cell, flow))]

    def _looked_up(
        self, key: n.Expression, where: n.SetName | n.Elements, cell: Cell, flow: Flow
    ) -> list[tuple[Flow, n.Element | Missing]]:
        """What stands there for each value; ABSENT: nothing."""
        index = self._index(where, cell)
        found: list[tuple[Flow, n.Element | Missing]] = []
        for drawn, value in self._drawn(key, cell, flow):
            if index is None or value is Missing.UNKNOWN or isinstance(value, Condition):
                found.append((drawn, Missing.UNKNOWN))
            elif isinstance(value, Missing):
                found.append((drawn, Missing.ABSENT))
            else:
                found.append((drawn, index.find(value) or Missing.ABSENT))
        return found

    def _mapped(
        self, key: n.Expression, mapping: n.SetName | n.Elements, cell: Cell, flow: Flow, where: _Where
    ) -> _Results:
        results: _Results = []
        for after, element in self._looked_up(key, mapping, cell, flow):
            match element:
                case n.Element(
                    value=n.Accept() | n.Drop() | n.Return() | n.Continue() | n.Jump() | n.Goto() as verdict
                ):
                    results.append((after, _act(verdict)))
                case Missing.ABSENT:
                    results.append((after, NEXT))
                case _:
                    results.append(self._lost(after, where))
        return results

    def _rewritten(self, nat: n.Nat, cell: Cell, flow: Flow, where: _Where) -> _Results:
        if not isinstance(nat.address, n.Lookup):
            target = _target(nat.address, nat.port, cell.packet)
            return [(replace(flow, target=target), End.ACCEPT) if target else self._lost(flow, where)]
        results: _Results = []
        for after, element in self._looked_up(nat.address.key, nat.address.map, cell, flow):
            if element is Missing.ABSENT:
                results.append((after, NEXT))
                continue
            found = element.value if isinstance(element, n.Element) else None
            target = _target(found, nat.port, cell.packet) if isinstance(found, (n.Concat, n.Address)) else None
            results.append((replace(after, target=target), End.ACCEPT) if target else self._lost(after, where))
        return results


def _asked(division: tuple[Flow | None, Flow | None]) -> _Results:
    yes, no = division
    return [*([(yes, None)] if yes else ()), *([(no, NEXT)] if no else ())]


def _act(verdict: n.Verdict) -> Act:
    match verdict:
        case n.Accept():
            return End.ACCEPT
        case n.Drop():
            return End.DROP
        case n.Return():
            return End.FELL_THROUGH
        case n.Continue():
            return NEXT
        case n.Jump(chain):
            return Into(chain)
        case n.Goto(chain):
            return Into(chain, goto=True)
        case _:
            assert_never(verdict)


def _network(key: n.Expression) -> str:
    """ "" if it is none."""
    match key:
        case n.Address(text):
            return text
        case n.Prefix(address, length):
            return f"{address}/{length}"
    return ""


def _by_rest(named: n.Set, at: int, cell: Cell) -> dict[object, Sources] | None:
    """Sources by the other parts of the row they stand in. None: there are ranges among those."""
    found: dict[object, list[str]] = {}
    for element in by_name(named.elements, named.types):
        if not isinstance(element.key, n.Concat):
            return None
        source = _network(element.key.parts[at])
        rest = [constant(part) for i, part in enumerate(element.key.parts) if i != at]
        if not source or not all_scalar(rest):
            return None
        found.setdefault(tuple(rest), []).append(source)
    return {rest: cell.clients.within(sources) for rest, sources in found.items()}


def _joined(row: tuple[Value, ...]) -> Value:
    if Missing.ABSENT in row:
        return Missing.ABSENT
    return tuple(v for v in row if isinstance(v, (str, int))) if all_scalar(row) else Missing.UNKNOWN


def _target(address: n.Expression | None, port: n.Expression | None, packet: Packet) -> Socket | None:
    match address, port:
        case n.Concat((n.Address(text), n.Number(number))), None:
            return Socket(text, number)
        case n.Address(text), n.Number(number):
            return Socket(text, number)
        case n.Address(text), None:
            return Socket(text, packet.destination_port)
    return None
