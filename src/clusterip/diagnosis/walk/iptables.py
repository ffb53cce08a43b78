"""The rules of one iptables table."""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk.branch import Branch, End, Fired, split
from clusterip.diagnosis.walk.chain import NEXT, Act, Into, Judged
from clusterip.diagnosis.walk.iptables_match import Matching
from clusterip.diagnosis.walk.nat import rewritten, source_rewritten, untracked
from clusterip.rulesets.evidence import Places
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as v

_INDEXED = 16  # a chain of fewer rules is walked as it is

# Targets that leave packet and verdict alone. Source: iptables-extensions(8).
_ASIDE = frozenset(
    {
        *("LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "CHECKSUM", "TCPMSS", "TCPOPTSTRIP", "TEE", "CLASSIFY", "DSCP"),
        *("TOS", "ECN", "TTL", "HL", "SET", "RATEEST", "LED", "IDLETIMER", "SECMARK", "CONNSECMARK", "HMARK"),
    }
)


class Index:
    """Rules by the one exact thing they ask for: a destination, else a destination port, else a source."""

    def __init__(self, rules: Sequence[v.Rule]) -> None:
        self.destination: dict[str, list[int]] = {}
        self.port: dict[int, list[int]] = {}
        self.source: dict[str, list[int]] = {}
        self.rest: list[int] = []
        for number, rule in enumerate(rules):
            self._place(number, rule)

    def _place(self, number: int, rule: v.Rule) -> None:
        port = source = None
        for match in rule.matches:
            match match:
                case v.Destination(network, False) if lone := v.lone_address(network):
                    self.destination.setdefault(lone, []).append(number)
                    return
                case v.Ports(destination=v.PortRange(first, last), destination_negated=False) if first == last:
                    port = first
                case v.Source(network, False) if lone := v.lone_address(network):
                    source = lone
        if port is not None:
            self.port.setdefault(port, []).append(number)
        elif source is not None:
            self.source.setdefault(source, []).append(number)
        else:
            self.rest.append(number)

    def applicable(self, packet: Packet) -> Iterable[int]:
        if not packet.source and self.source:  # it may be any of them
            return sorted([*self._known(packet), *(n for numbers in self.source.values() for n in numbers)])
        return self._known(packet)

    def _known(self, packet: Packet) -> list[int]:
        found = [
            *self.destination.get(packet.destination, ()),
            *self.port.get(packet.destination_port, ()),
            *self.source.get(packet.source, ()),
        ]
        merged = list(self.rest)
        for number in found:
            insort(merged, number)
        return merged


@dataclass(frozen=True, slots=True)
class IptablesTable:
    program: str
    rules: v.Table
    matching: Matching
    places: Places = field(default_factory=Places)
    _indexes: dict[str, Index] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return self.rules.name

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        found = self.rules.chains.get(chain)
        if found is None:
            return None
        if len(found.rules) < _INDEXED:
            return range(len(found.rules))
        index = self._indexes.get(chain)
        if index is None:
            index = self._indexes[chain] = Index(found.rules)
        return index.applicable(packet)

    def judge(self, chain: str, rule: int, hook: str, branch: Branch) -> list[Judged]:
        found = self.rules.chains[chain].rules[rule]
        meeting, judged = [branch], list[Judged]()
        for match in found.matches:
            still: list[Branch] = []
            for one in meeting:
                yes, no = split(one, self.matching.answer(match, one.packet, f"{self.table}/{chain} rule {rule + 1}"))
                if yes:
                    still.append(yes)
                if no:
                    judged.append((no, NEXT))
            meeting = still
            if not meeting:
                return judged
        # Those that met the rule go first: of two ways that end alike the later one, where less was the case, is told.
        return [self._carried_out(found, chain, rule, hook, one) for one in meeting] + judged

    def told(self, chain: str, rule: int) -> tuple[str, str, int]:
        text = line_text(chain, replace(self.rules.chains[chain].rules[rule], counters=None))
        return text, self.places.file, self.places.line(self.table, chain, rule)

    def _carried_out(self, rule: v.Rule, chain: str, number: int, hook: str, branch: Branch) -> Judged:
        act, after, effect = _effect(rule.target, branch.packet, self, hook)
        if not effect:
            return branch, act
        if act is End.LOST:
            text = line_text(chain, rule)
            return replace(branch, note=f"the target of {text!r} is not modelled"), act
        return branch.fires(Fired(hook, self.program, self.table, chain, number, effect, branch.packet, after)), act


def _effect(target: v.Target, packet: Packet, table: IptablesTable, hook: str) -> tuple[Act, Packet, str]:
    """What comes next, the packet then, and a word for what was done; "": nothing was."""
    match target:
        case None:
            return NEXT, packet, ""
        case v.Accept():
            return End.ACCEPT, packet, "accept"
        case v.Drop():
            return End.DROP, packet, "drop"
        case v.Reject(how):
            return End.REJECT, packet, f"reject {how}".rstrip()
        case v.Return():
            return End.FELL_THROUGH, packet, ""
        case v.Jump(chain):
            return Into(chain), packet, ""
        case v.Goto(chain):
            return Into(chain, goto=True), packet, ""
        case v.SetMark(value, mask):
            mark = (packet.mark & ~mask) ^ value
            return NEXT, replace(packet, mark=mark), f"mark {mark:#x}"
        case v.DNAT(to):
            after = rewritten(packet, to)
            effect = f"dnat {socket(after.destination, after.destination_port)}" if after else "dnat"
            return End.ACCEPT if after else End.LOST, after or packet, effect
        case v.SNAT(to):
            after = source_rewritten(packet, to)
            return End.ACCEPT, after, f"snat {after.source}"
        case v.Masquerade():
            source = table.matching.surroundings.masquerade(packet.destination)
            after = replace(packet, source=source, source_port=0, source_rewritten=True)
            return End.ACCEPT, after, f"masquerade {source}".rstrip()
        case v.OtherTarget(name, words):
            return _other(name, words, packet, hook)
        case _:
            assert_never(target)


def _other(name: str, words: tuple[str, ...], packet: Packet, hook: str) -> tuple[Act, Packet, str]:
    if name in _ASIDE:
        return NEXT, packet, ""
    if name == "NOTRACK" or (name == "CT" and words == ("--notrack",)):
        after = untracked(packet)
        return NEXT, after, "notrack" if after != packet else ""
    if name == "CONNMARK" and (marked := _connmark(words, packet)):
        if not packet.tracked:  # there is no connection that has a mark
            return NEXT, packet, ""
        return NEXT, marked, f"ct mark {marked.ct_mark:#x}" if marked.mark == packet.mark else f"mark {marked.mark:#x}"
    if name == "REDIRECT" and hook == "output":
        port = int(words[1]) if words[:1] == ("--to-ports",) and words[1].isdecimal() else packet.destination_port
        here = "::1" if packet.ipv6 else "127.0.0.1"
        after = replace(packet, destination=here, destination_port=port, destination_rewritten=True)
        return End.ACCEPT, after, f"redirect {socket(here, port)}"
    return End.LOST, packet, name


def _connmark(words: tuple[str, ...], packet: Packet) -> Packet | None:
    """None: with options that are not modelled. Source: iptables-extensions(8), CONNMARK."""
    given = dict(zip(words[1::2], words[2::2], strict=False)) if words[:1] != ("--set-xmark",) else {}
    try:
        masks = {name: int(text, 0) for name, text in given.items()}
        match words:
            case ("--set-xmark" | "--set-mark", text):
                value, _, mask = text.partition("/")
                number, bits = int(value, 0), int(mask or "0xffffffff", 0)
                bits |= number if words[0] == "--set-mark" else 0
                return replace(packet, ct_mark=(packet.ct_mark & ~bits) ^ number)
            case ("--save-mark", *_):
                nf, ct = masks.get("--nfmask", 0xFFFFFFFF), masks.get("--ctmask", 0xFFFFFFFF)
                return replace(packet, ct_mark=(packet.ct_mark & ~ct) ^ (packet.mark & nf))
            case ("--restore-mark", *_):
                nf, ct = masks.get("--nfmask", 0xFFFFFFFF), masks.get("--ctmask", 0xFFFFFFFF)
                return replace(packet, mark=(packet.mark & ~nf) ^ (packet.ct_mark & ct))
    except ValueError:
        return None
    return None
