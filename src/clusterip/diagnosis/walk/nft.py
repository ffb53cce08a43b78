"""The rules of one nftables table.

A rule's statements are judged from left to right; where one does not hold, or looks something up that is not there,
the rule ends. Source: nft(8); net/netfilter/nft_lookup.c, nft_dynset.c.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk import nft_values
from clusterip.diagnosis.walk.branch import Answer, Branch, Condition, End, Fired, inverted, split
from clusterip.diagnosis.walk.chain import NEXT, Act, Into, Judged
from clusterip.diagnosis.walk.nat import rewritten, untracked
from clusterip.diagnosis.walk.nft_sets import Index, by_name
from clusterip.diagnosis.walk.nft_values import Known, Missing, Value, all_scalar, constant, either, meets
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.rulesets.evidence import Places
from clusterip.rulesets.nft import values as n
from clusterip.rulesets.nft.text import rule_text, statement_text


class _Go(Enum):
    ON = "on with the next statement"


_GO_ON = _Go.ON
_Result: TypeAlias = tuple[Branch, Act | _Go]


SetIndexes: TypeAlias = dict[int, tuple[object, Index]]  # by the id of what was indexed, which is kept alive


@dataclass(frozen=True, slots=True)
class _Place:
    hook: str
    chain: str
    rule: int


@dataclass(frozen=True, slots=True)
class NftTable:
    rules: n.Table
    surroundings: Surroundings
    places: Places
    _indexes: SetIndexes = field(default_factory=dict)

    @property
    def program(self) -> str:
        return "nft"

    @property
    def table(self) -> str:
        return f"{self.rules.family} {self.rules.name}"

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        found = self.rules.chains.get(chain)
        return range(len(found.rules)) if found else None

    def told(self, chain: str, rule: int) -> tuple[str, str, int]:
        text = rule_text(self.rules.chains[chain].rules[rule])
        return text, self.places.file, self.places.line(self.table, chain, rule)

    def judge(self, chain: str, rule: int, hook: str, branch: Branch) -> list[Judged]:
        place = _Place(hook, chain, rule)
        pending, judged = [branch], list[Judged]()
        for statement in self.rules.chains[chain].rules[rule].statements:
            still: list[Branch] = []
            for one in pending:
                for after, result in self._carried_out(statement, one, place):
                    if isinstance(result, _Go):
                        still.append(after)
                    else:
                        judged.append((after, result))
            pending = still
            if not pending:
                break
        return [*((one, NEXT) for one in pending), *judged]

    # --- statements ---

    def _carried_out(self, statement: n.Statement, branch: Branch, place: _Place) -> list[_Result]:
        match statement:
            case n.Match():
                return self._matched(statement, branch, place)
            case n.VerdictMap(key, where):
                return self._mapped(key, where, branch, place)
            case n.Accept() | n.Drop() | n.Return() | n.Continue() | n.Jump() | n.Goto():
                return [self._verdict(statement, branch, place, "")]
            case n.Reject(how):
                return [(self._fires(branch, place, f"reject {how}".rstrip()), End.REJECT)]
            case n.Nat():
                return self._translated(statement, branch, place)
            case n.Mangle(target, value):
                return self._mangled(target, value, branch, place)
            case n.Counter() | n.Log():
                return [(branch, _GO_ON)]
            case n.Update(statements=inner):
                return [(branch, _GO_ON)] if not inner else self._asked(self._unknown(statement, place), branch)
            case n.NoTrack():
                after = untracked(branch.packet)
                changed = after != branch.packet
                return [(self._fires(branch, place, "notrack", after) if changed else branch, _GO_ON)]
            case n.Limit(rate):
                limit = Condition(
                    f"limit {self.table} {place.chain} {place.rule}",
                    "unknown",
                    f"the limit of {rate} lets it pass",
                    f"the limit of {rate} does not let it pass",
                )
                return self._asked(limit, branch)
            case n.Xt() | n.OtherStatement():
                return self._other(statement, branch, place)
            case _:
                assert_never(statement)

    def _asked(self, answer: Answer, branch: Branch) -> list[_Result]:
        yes, no = split(branch, answer)
        return [*([(yes, _GO_ON)] if yes else []), *([(no, NEXT)] if no else [])]

    def _matched(self, match: n.Match, branch: Branch, place: _Place) -> list[_Result]:
        found: list[_Result] = []
        for drawn, value in self._values(match.left, branch):
            found += self._asked(self._answer(match, value, drawn.packet, place), drawn)
        return found

    def _answer(self, match: n.Match, value: Value, packet: Packet, place: _Place) -> Answer:
        match value:
            case Missing.ABSENT:
                return False
            case Missing.UNKNOWN:
                return self._perhaps(match, packet, place)
            case Condition():
                answer = either(value, match.operator, match.right)
                return self._unknown(match, place) if answer is None else answer
        if isinstance(match.right, (n.SetName, n.Elements)):
            return self._in_set(match, value, place)
        found = meets(value, match.operator, match.right)
        return self._unknown(match, place) if found is None else found

    def _in_set(self, match: n.Match, value: Known, place: _Place) -> Answer:
        index = self._index(match.right)
        if index is None:
            return self._unknown(match, place)
        if index.find(value) is not None:
            return match.operator != "!="
        named = self.rules.sets.get(match.right.name) if isinstance(match.right, n.SetName) else None
        if named and "dynamic" in named.flags and match.operator != "!=":
            # Rules fill it as connections come: what a listing shows is over by the next one.
            what = f"{value if isinstance(value, str) else statement_text(match)} is in set {named.name}"
            no = what.replace(" is in set ", " is not in set ")
            return Condition(f"in {self.table} {named.name} {value}", "affinity", what, no)
        return match.operator == "!="

    def _perhaps(self, match: n.Match, packet: Packet, place: _Place) -> Answer:
        """Of a value that is not known, or not all of it: no element may agree with what is."""
        if isinstance(match.left, n.Meta) and match.right in (n.Quoted("lo"), n.Word("lo")):
            return match.operator == "!="  # what is not known is where a packet of others comes from or goes to
        if isinstance(match.left, n.Payload) and match.left.field == "saddr":
            match match.right:
                case n.Prefix(address, length):
                    own = self.surroundings.is_own_within(f"{address}/{length}")
                    return inverted(own) if match.operator == "!=" else own
                case n.Address(address):
                    lone = self.surroundings.is_own_within(f"{address}/{128 if packet.ipv6 else 32}")
                    return inverted(lone) if match.operator == "!=" else lone
        if isinstance(match.left, n.Concat) and isinstance(match.right, (n.SetName, n.Elements)):
            index = self._index(match.right)
            parts = [nft_values.field(p, packet, self.surroundings) for p in match.left.parts]
            known = [p if isinstance(p, (str, int)) else Missing.UNKNOWN for p in parts]
            if index is not None and not index.may_hold(known):
                return match.operator == "!="
        return self._unknown(match, place)

    def _unknown(self, statement: n.Statement, place: _Place) -> Answer:
        """What asks the same of a packet is the same question; of an unmodelled statement nobody knows what it asks."""
        if isinstance(statement, n.Match) and statement.operator == "!=":
            return inverted(self._unknown(n.Match(statement.left, "", statement.right), place))
        text = statement_text(statement)
        rule = f"{self.table} {place.chain} rule {place.rule + 1}"
        if isinstance(statement, n.Match) and not isinstance(statement.left, n.OtherExpression):
            return Condition(f"{self.table} {text}", "unknown", f'"{text}" holds', f'"{text}" does not hold', rule)
        return Condition(f"{rule} {text}", "unmodelled", f'"{text}" holds', f'"{text}" does not hold', rule)

    def _mapped(self, key: n.Expression, where: n.SetName | n.Elements, branch: Branch, place: _Place) -> list[_Result]:
        index = self._index(where)
        found: list[_Result] = []
        for drawn, value in self._values(key, branch):
            if value is Missing.ABSENT:
                found.append((drawn, NEXT))
            elif index is None or isinstance(value, (Missing, Condition)):
                why = (
                    f"{self.table} {place.chain}: what {statement_text(n.VerdictMap(key, where))!r} finds is not known"
                )
                found.append((replace(drawn, note=why), End.LOST))
            else:
                element = index.find(value)
                if element is None or not isinstance(element.value, _VERDICTS):
                    found.append((drawn, NEXT))
                else:
                    found.append(self._verdict(element.value, drawn, place, element.comment))
        return found

    def _verdict(self, verdict: n.Verdict, branch: Branch, place: _Place, comment: str) -> _Result:
        match verdict:
            case n.Jump(chain):
                return branch, Into(chain)
            case n.Goto(chain):
                return branch, Into(chain, goto=True)
            case n.Accept():
                return self._fires(branch, place, "accept", text=comment), End.ACCEPT
            case n.Drop():
                return self._fires(branch, place, "drop", text=comment), End.DROP
            case n.Return():
                return branch, End.FELL_THROUGH
            case n.Continue():
                return branch, NEXT
            case _:
                assert_never(verdict)

    def _mangled(self, target: n.Expression, expression: n.Expression, branch: Branch, place: _Place) -> list[_Result]:
        found: list[_Result] = []
        for drawn, value in self._values(expression, branch):
            packet = drawn.packet
            match target, value:
                case n.Meta("mark"), int():
                    after = replace(packet, mark=value & 0xFFFFFFFF)
                    found.append((self._fires(drawn, place, f"mark {after.mark:#x}", after), _GO_ON))
                case n.Ct("mark"), int():
                    after = replace(packet, ct_mark=value & 0xFFFFFFFF) if packet.tracked else packet
                    found.append((self._fires(drawn, place, f"ct mark {after.ct_mark:#x}", after), _GO_ON))
                case _, Missing.ABSENT:
                    found.append((drawn, NEXT))
                case ((n.Payload(_, "saddr" | "daddr" | "sport" | "dport") | n.Meta("mark") | n.Ct("mark")), _):
                    why = (
                        f"{self.table} {place.chain}: {statement_text(n.Mangle(target, expression))!r} is not modelled"
                    )
                    found.append((replace(drawn, note=why), End.LOST))
                case _:
                    found.append((drawn, _GO_ON))  # priorities, classes and the like change nothing here
        return found

    def _translated(self, nat: n.Nat, branch: Branch, place: _Place) -> list[_Result]:
        if nat.kind == "masquerade":
            source = self.surroundings.masquerade(branch.packet.destination)
            after = replace(branch.packet, source=source, source_port=0, source_rewritten=True)
            return [(self._fires(branch, place, f"masquerade {source}".rstrip(), after), End.ACCEPT)]
        found: list[_Result] = []
        for drawn, value in self._values(nat.address, branch) if nat.address else [(branch, "")]:
            for again, port in self._values(nat.port, drawn) if nat.port else [(drawn, 0)]:
                found.append(self._to(nat, value, port, again, place))
        return found

    def _to(self, nat: n.Nat, value: Value, port: Value, branch: Branch, place: _Place) -> _Result:
        if Missing.ABSENT in (value, port):
            return branch, NEXT
        address, number = value if isinstance(value, tuple) and len(value) == 2 else (value, port)
        packet = branch.packet
        if nat.kind == "redirect" and place.hook == "output":
            address = "::1" if packet.ipv6 else "127.0.0.1"
        if not isinstance(address, str) or not isinstance(number, int) or not (address or number):
            why = f"{self.table} {place.chain}: where {statement_text(nat)!r} leads is not known"
            return replace(branch, note=why), End.LOST
        if nat.kind == "snat":
            after = replace(packet, source=address, source_port=number, source_rewritten=True)
            return self._fires(branch, place, f"snat {socket(address, number)}", after), End.ACCEPT
        to = rewritten(packet, socket(address, number) if address else f":{number}")
        if to is None or (nat.kind == "redirect" and not address):
            return replace(branch, note=f"where {statement_text(nat)!r} leads is not known"), End.LOST
        effect = f"{nat.kind} {socket(to.destination, to.destination_port)}"
        return self._fires(branch, place, effect, to), End.ACCEPT

    def _other(self, statement: n.Xt | n.OtherStatement, branch: Branch, place: _Place) -> list[_Result]:
        match statement:
            case n.Xt("match", "comment"):
                return [(branch, _GO_ON)]
            case n.Xt("target", name) if name not in ("LOG", "NFLOG", "TCPMSS", "CHECKSUM", "TRACE"):
                why = f"{self.table} {place.chain}: target {name} is told by iptables-save alone"
                return [(replace(branch, note=why), End.LOST)]
            case n.Xt("target", _):
                return [(branch, _GO_ON)]
            case n.OtherStatement(text) if not _DECISIVE.isdisjoint(text.split()):
                return [(replace(branch, note=f"{self.table} {place.chain}: {text!r} is not modelled"), End.LOST)]
            case _:
                return self._asked(self._unknown(statement, place), branch)

    def _fires(self, branch: Branch, place: _Place, effect: str, after: Packet | None = None, text: str = "") -> Branch:
        packet = branch.packet
        return branch.fires(
            Fired(place.hook, "nft", self.table, place.chain, place.rule, effect, packet, after or packet, text)
        )

    # --- values ---

    def _values(self, expression: n.Expression, branch: Branch) -> list[tuple[Branch, Value]]:
        """All that an expression may give, each as a way of its own."""
        match expression:
            case n.Numgen(mode, modulus, offset):
                return _drawn(branch, offset, modulus, long_run=mode == "inc")
            case n.JHash(_, modulus, _, offset):
                return _drawn(branch, offset, modulus, long_run=True)
            case n.Concat(parts):
                return self._together(parts, branch)
            case n.Lookup(key, where):
                return [(drawn, self._found(where, value)) for drawn, value in self._values(key, branch)]
            case n.Binary(operator, left, right) if isinstance(left, (n.Numgen, n.JHash, n.Lookup)):
                return [
                    (drawn, nft_values.computed(operator, value, constant(right)))
                    for drawn, value in self._values(left, branch)
                ]
            case _:
                return [(branch, nft_values.field(expression, branch.packet, self.surroundings))]

    def _together(self, parts: Sequence[n.Expression], branch: Branch) -> list[tuple[Branch, Value]]:
        rows: list[tuple[Branch, tuple[Value, ...]]] = [(branch, ())]
        for part in parts:
            rows = [(after, (*row, value)) for drawn, row in rows for after, value in self._values(part, drawn)]
        return [(drawn, _row(row)) for drawn, row in rows]

    def _found(self, where: n.SetName | n.Elements, value: Value) -> Value:
        """What a map gives for a key."""
        index = self._index(where)
        if value is Missing.ABSENT:
            return Missing.ABSENT
        if index is None or isinstance(value, (Missing, Condition)):
            return Missing.UNKNOWN
        element = index.find(value)
        return Missing.ABSENT if element is None else constant(element.value)

    def _index(self, where: n.Expression) -> Index | None:
        """None: the set is not in the table."""
        if isinstance(where, n.Elements):
            of: object = where
            elements: Sequence[n.Element] = where.elements
            types: Sequence[str] = ()
        elif isinstance(where, n.SetName) and (named := self.rules.sets.get(where.name)):
            of, elements, types = named, named.elements, named.types
        else:
            return None
        kept = self._indexes.get(id(of))
        if kept is None:
            kept = self._indexes[id(of)] = (of, Index(by_name(elements, types)))
        return kept[1]


# In a statement that is not modelled: what it does with the packet is not known.
_DECISIVE = frozenset(
    {
        *("accept", "drop", "reject", "return", "jump", "goto", "queue", "vmap"),
        *("dnat", "snat", "masquerade", "redirect", "tproxy", "synproxy", "fwd", "dup"),
    }
)
_VERDICTS = (n.Accept, n.Drop, n.Return, n.Continue, n.Jump, n.Goto)


def _drawn(branch: Branch, offset: int, modulus: int, *, long_run: bool) -> list[tuple[Branch, Value]]:
    share = Fraction(1, modulus) if modulus > 0 else Fraction(1)
    if modulus == 1:
        return [(branch, offset)]
    return [(branch.likely(share, long_run=long_run), offset + drawn) for drawn in range(modulus)]


def _row(values: tuple[Value, ...]) -> Value:
    if Missing.ABSENT in values:
        return Missing.ABSENT
    if not all_scalar(values):
        return Missing.UNKNOWN
    return tuple(v for v in values if isinstance(v, (str, int)))
