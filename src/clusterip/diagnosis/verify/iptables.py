"""Sets of packets against the rules of one iptables table."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify import forms
from clusterip.diagnosis.verify.chain import Cell, Ended, Judged, through, walked
from clusterip.diagnosis.verify.flow import (
    Flow,
    Memory,
    Socket,
    Weight,
    among,
    as_packet,
    divided,
    lost,
    remembering,
    swapped,
)
from clusterip.diagnosis.verify.interfaces import came_in
from clusterip.diagnosis.verify.literals import Literals
from clusterip.diagnosis.verify.sources import Sources, split
from clusterip.diagnosis.walk.branch import Branch, End
from clusterip.diagnosis.walk.chain import NEXT, Into
from clusterip.diagnosis.walk.iptables import IptablesTable
from clusterip.diagnosis.walk.nat import parts
from clusterip.rulesets.iptables import values as v
from clusterip.services.table import PROTOCOL_NUMBERS

_REPEATED = frozenset({v.IPProtocol, v.Ports})
_FEW = 16  # a chain of fewer rules is walked as it is

_Division: TypeAlias = tuple[Flow | None, Flow | None]
_Where: TypeAlias = tuple[str, int]  # chain, rule


class IptablesSets:
    def __init__(self, of: IptablesTable) -> None:
        self._of = of
        self._chains = of.rules.chains
        self._networks: dict[str, Sources] = {}
        self._forms: dict[str, forms.Form] = {}
        self._rules: dict[str, tuple[v.Rule, ...]] = {}  # of chains that were walked

    @property
    def program(self) -> str:
        return self._of.program

    @property
    def table(self) -> str:
        return self._of.rules.name

    def collect(self, literals: Literals) -> None:
        literals.add_iptables(id(self), self._chains)

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        if chain not in self._chains:
            return None
        rules = self._rules_of(chain)
        return range(len(rules)) if len(rules) < _FEW else self._of.applicable(chain, packet)

    def direct(self, chain: str, cell: Cell, flow: Flow, above: tuple[str, ...]) -> list[Ended] | None:
        form = self._form(chain)
        match form:
            case forms.Endpoint() if cell.certain.issuperset(form.asks):
                return self._at_endpoint(form, cell, flow, (*above, chain))
            case forms.Spread() if all(cell.certain.issuperset(asks) for asks in form.asks):
                before = walked(self, chain, cell, flow, (range(form.after), above))
                ended = [one for one in before if one[0] is not End.FELL_THROUGH]
                for end, one in before:
                    if end is End.FELL_THROUGH:
                        ended += self._spread(form, cell, one, (*above, chain))
                return ended
        return None

    def _form(self, chain: str) -> forms.Form:
        found = self._forms.get(chain, forms.UNREAD)
        if found is forms.UNREAD:
            found = self._forms[chain] = forms.form(chain, self._rules_of)
        return found

    def _rules_of(self, chain: str) -> Sequence[v.Rule]:
        found = self._rules.get(chain)
        if found is None:
            found = self._rules[chain] = self._chains[chain].rules if chain in self._chains else ()
        return found

    def _spread(self, form: forms.Spread, cell: Cell, flow: Flow, above: tuple[str, ...]) -> list[Ended]:
        """Each endpoint's chance is of what those before it left."""
        ended: list[Ended] = []
        left: Weight | None = flow.weight
        for numerator, endpoint in zip(form.numerators, form.endpoints, strict=True):
            if left is None:
                break
            part, left = left.divided(numerator, 1 << 31)
            if part:
                ended += self._at_endpoint(endpoint, cell, replace(flow, weight=part), above)
        return ended if left is None else [*ended, (End.FELL_THROUGH, replace(flow, weight=left))]

    def _at_endpoint(self, form: forms.Endpoint, cell: Cell, flow: Flow, above: tuple[str, ...]) -> list[Ended]:
        ended: list[Ended] = []
        inside, outside = split(flow.sources, cell.clients.at(form.address))
        if inside:
            itself = replace(flow, sources=inside)
            for end, after in through(self, form.calls_itself, cell, itself, above):
                fell = end is End.FELL_THROUGH
                ended.append((End.ACCEPT, replace(after, target=form.target)) if fell else (end, after))
        if outside:
            ended.append((End.ACCEPT, replace(flow, sources=outside, target=form.target)))
        return ended

    def judge(self, chain: str, rule: int, cell: Cell, flow: Flow) -> list[Judged]:
        found = self._rules[chain][rule]
        meeting, judged = [flow], list[Judged]()
        for match in found.matches:
            kind = type(match)
            if kind is v.Comment or kind is v.NfAcct or (kind in _REPEATED and match in cell.certain):
                continue
            division = _DIVISIONS.get(kind, IptablesSets._as_told)
            still: list[Flow] = []
            for one in meeting:
                yes, no = division(self, match, cell, one, (chain, rule))
                if yes is not None:
                    still.append(yes)
                if no is not None:
                    judged.append((no, NEXT))
            meeting = still
            if not meeting:
                return judged
        judged += [self._carried_out(found.target, (chain, rule), cell, one) for one in meeting]
        return judged

    # --- matches ---

    def _source(self, match: v.Source, cell: Cell, flow: Flow, where: _Where) -> _Division:
        return swapped(match.negated, among(flow, *split(flow.sources, self._within(match.network, cell))))

    def _within(self, network: str, cell: Cell) -> Sources:
        address, _, length = network.partition("/")
        if length == ("128" if cell.clients.ipv6 else "32") and "," not in network:
            return cell.clients.at(address)
        found = self._networks.get(network)
        if found is None:
            found = self._networks[network] = cell.clients.within(network.split(","))
        return found

    def _random(self, match: v.Random, cell: Cell, flow: Flow, where: _Where) -> _Division:
        part, rest = flow.weight.divided(match.numerator, 1 << 31)
        yes = replace(flow, weight=part) if part else None
        return swapped(match.negated, (yes, replace(flow, weight=rest) if rest else None))

    def _mark(self, match: v.Mark, cell: Cell, flow: Flow, where: _Where) -> _Division:
        return (flow, None) if (flow.mark & match.mask == match.value) != match.negated else (None, flow)

    def _recent(self, match: v.Recent, cell: Cell, flow: Flow, where: _Where) -> _Division:
        if match.side == "rdest" or match.action == "remove" or match.hitcount or match.negated:
            return self._as_told(match, cell, flow, where)
        if match.action == "set":
            return replace(flow, noted=(*flow.noted, match.name)), None
        return remembering(flow, Memory(match.name, match.seconds))

    def _address_type(self, match: v.AddrType, cell: Cell, flow: Flow, where: _Where) -> _Division:
        """Of the sources the node's own are local, the others not."""
        if match.source not in ("LOCAL", "UNICAST") or match.limit:
            return self._as_told(match, cell, flow, where)
        yes, no = among(flow, *split(flow.sources, cell.clients.node))
        yes, no = swapped((match.source == "UNICAST") != match.source_negated, (yes, no))
        if not match.destination or yes is None:
            return yes, no
        rest = replace(match, source="", source_negated=False)
        meets, misses = self._as_told(rest, cell, yes, where)
        # Where both could be the answer to the destination, the address is taken for the node's or not by its cell.
        return (meets, no) if misses is None else (meets, flow)

    def _came_in(self, match: v.InInterface, cell: Cell, flow: Flow, where: _Where) -> _Division:
        return swapped(match.negated, came_in(match.pattern, cell, flow))

    def _in_set(self, match: v.InSet, cell: Cell, flow: Flow, where: _Where) -> _Division:
        """Of the sources those are in it that stand there with the packet's destination."""
        inside = self._of.matching.ipsets.sources(match.name, match.directions, cell.packet)
        if inside is None:
            return self._as_told(match, cell, flow, where)
        return swapped(match.negated, among(flow, *split(flow.sources, cell.clients.within(inside))))

    def _other(self, match: v.OtherMatch, cell: Cell, flow: Flow, where: _Where) -> _Division:
        """What IPVS has sent on is known by what it was."""
        if match.module != "ipvs" or len(match.words) % 2 or "!" in match.words:
            return self._as_told(match, cell, flow, where)
        was = cell.virtual
        if was is None:
            return None, flow
        numbers: dict[str, str] = {name: str(number) for name, number in PROTOCOL_NUMBERS.items()}
        has = {"--vproto": numbers.get(was.protocol.upper(), ""), "--vaddr": was.destination}
        has |= {"--vport": str(was.destination_port)}
        asked = dict(zip(match.words[::2], match.words[1::2], strict=True))
        if not asked.keys() <= has.keys():
            return self._as_told(match, cell, flow, where)
        return (flow, None) if asked.items() <= has.items() else (None, flow)

    def _as_told(self, match: v.Match, cell: Cell, flow: Flow, where: _Where) -> _Division:
        """What does not hang on the source is answered as for one packet."""
        name = f"{self.table}/{where[0]} rule {where[1] + 1}"
        return divided(flow, self._of.matching.answer(match, as_packet(cell.packet, flow), name))

    # --- targets ---

    def _carried_out(self, target: v.Target, where: _Where, cell: Cell, flow: Flow) -> Judged:
        match target:
            case v.Jump(to):
                return flow, Into(to)
            case v.Goto(to):
                return flow, Into(to, goto=True)
            case v.SetMark(value, mask):
                return replace(flow, mark=(flow.mark & ~mask) ^ value), NEXT
            case v.DNAT(to):
                address, port = parts(to)
                if address and port.isdecimal() and "-" not in address:
                    return replace(flow, target=Socket(address, int(port))), End.ACCEPT
            case v.Masquerade() | v.SNAT():
                return replace(flow, masqueraded=True), End.ACCEPT
            case None:
                return flow, NEXT
            case v.Return():
                return flow, End.FELL_THROUGH
        return self._as_one_packet(target, where, cell, flow)

    def _as_one_packet(self, target: v.Target, where: _Where, cell: Cell, flow: Flow) -> Judged:
        """A target that asks nothing of the source."""
        alone = v.Table(self.table, {"": v.Chain("", (v.Rule((), target),))})
        packet = as_packet(cell.packet, flow)
        [(branch, act)] = IptablesTable(self.program, alone, self._of.matching).judge("", 0, "", Branch(packet))
        if act is End.LOST:
            text = self._of.told(*where)[0]
            return lost(flow, f"{self.table}/{where[0]} rule {where[1] + 1}", f"the target of {text!r}"), act
        after = branch.packet
        if after != packet:
            moved = (after.destination, after.destination_port) != (packet.destination, packet.destination_port)
            flow = replace(
                flow,
                mark=after.mark,
                ct_mark=after.ct_mark,
                tracked=after.state != "UNTRACKED",
                target=Socket(after.destination, after.destination_port) if moved else flow.target,
                masqueraded=after.source_rewritten,
            )
        return flow, act


_DIVISIONS: dict[type, Callable[[IptablesSets, Any, Cell, Flow, _Where], _Division]] = {
    v.Source: IptablesSets._source,
    v.Random: IptablesSets._random,
    v.Mark: IptablesSets._mark,
    v.Recent: IptablesSets._recent,
    v.AddrType: IptablesSets._address_type,
    v.InInterface: IptablesSets._came_in,
    v.InSet: IptablesSets._in_set,
    v.OtherMatch: IptablesSets._other,
}
