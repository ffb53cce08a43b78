"""Sets of packets through the hooks of the kernel, in their order. `walk.hooks` does the same for one packet."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.chain import Cell, Ended, Sets
from clusterip.diagnosis.verify.flow import Doubts, Flow, Memory, Socket, Weight
from clusterip.diagnosis.verify.iptables import IptablesSets
from clusterip.diagnosis.verify.ipvs import IPVSSets
from clusterip.diagnosis.verify.literals import Literals
from clusterip.diagnosis.verify.nft import NftSets
from clusterip.diagnosis.verify.passage import Passage, cell_of, rewritten
from clusterip.diagnosis.verify.sources import Clients, Sources, both
from clusterip.diagnosis.verify.virtual import VirtualWays, speaking
from clusterip.diagnosis.walk.branch import End
from clusterip.diagnosis.walk.hooks import BaseChain, HookName
from clusterip.diagnosis.walk.iptables import IptablesTable
from clusterip.diagnosis.walk.ipvs import IPVS
from clusterip.diagnosis.walk.nft import NftTable
from clusterip.diagnosis.walk.programs import Programs
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.errors import ClusterIPError

Verdict: TypeAlias = Literal["delivered", "rejected", "dropped", "passed", "unknown"]

_VERDICTS: dict[End, Verdict] = {End.DROP: "dropped", End.REJECT: "rejected", End.LOST: "unknown"}
_Stage: TypeAlias = tuple[HookName, Sequence[BaseChain], Packet]
_ONWARD: tuple[HookName, ...] = ("forward", "postrouting")
_AGAIN: tuple[HookName, ...] = ("prerouting", "input")  # what the node sends to itself comes back over the loopback


class Leaf(Struct, frozen=True, gc=False):
    """What becomes of some packets."""

    sources: Sources
    weight: Weight
    verdict: Verdict
    target: Socket | None = None
    masqueraded: bool = False
    here: bool = False  # it ends on this node, which sees the answers whatever their source
    remembered: Memory | None = None
    noted: tuple[str, ...] = ()
    doubts: Doubts = ()


class _Rest(Struct, frozen=True, gc=False):
    """What becomes of some packets once their destination is settled, whatever happened before."""

    sources: Sources | None  # None: of all that come this way
    share: Fraction
    verdict: Verdict
    masqueraded: bool
    doubts: Doubts


class _Arrival(NamedTuple):
    """Where packets go once their destination is settled."""

    packet: Packet
    here: bool  # it is an address of the node's
    key: tuple[object, ...]  # equal for those whom no rule tells apart


class NotModelled(ClusterIPError):
    """Something else sends packets on."""


class Ways:
    """Of one node and family."""

    def __init__(self, programs: Programs, surroundings: Surroundings, clients: Clients, literals: Literals) -> None:
        """`literals` are filled with those of the rules. Raises NotModelled."""
        self.clients = clients
        self.surroundings = surroundings
        self.literals = literals
        self._sets = {name: _sets(rules) for name, rules in programs.tables.items()}
        for sets in self._sets.values():
            sets.collect(self.literals)
        self._passage = Passage(self._sets)
        self._chains: Mapping[HookName, Sequence[BaseChain]] = programs.chains
        self.servers = next((s for s in self._sets.values() if isinstance(s, IPVSSets)), None)
        self._virtual = VirtualWays(self._passage, self._chains, surroundings)
        # From here on destinations are settled: what follows is the same for all that go to one place.
        nat = [c for c in (*self._chains["prerouting"], *self._chains["output"]) if c.kind == "nat"]
        self._settling = max((c.priority for c in nat), default=-100)
        self._one = Weight(Fraction(1))
        self._rests: dict[tuple[object, ...], tuple[tuple[_Rest, ...], set[tuple[int, str]]]] = {}

    def is_here(self, address: str) -> bool:
        """Whether it is one of the node's own."""
        return address in self.surroundings.local or address.startswith("127.") or address == "::1"

    def clients_of(self, packet: Packet) -> Clients:
        """Who may send it, and with which source."""
        bound = packet.destination in self.surroundings.bound
        return speaking(self.clients, packet.destination) if bound else self.clients

    def leaves(self, packet: Packet) -> tuple[list[Leaf], set[tuple[int, str]]]:
        """All that may become of packets like this one, from every client; and what was asked on the way."""
        cell = cell_of(packet, self.clients_of(packet))
        taken = self.servers is not None and self.servers.serves(packet)
        found = self._from(cell, "output", cell.clients.node, taken=taken)
        # What comes in gets as far as IPVS if its address is one of the node's.
        taken = taken and self.is_here(packet.destination)
        return found + self._from(cell, "prerouting", cell.clients.arriving, taken=taken), cell.asked

    def _from(self, cell: Cell, hook: HookName, sources: Sources, *, taken: bool) -> list[Leaf]:
        """Of what begins at this hook. `taken`: IPVS takes it, if nothing stops it before."""
        if not sources:
            return []
        if taken:
            return [self._arrived(end, flow) for end, flow in self._virtual.ends(cell, hook, Flow(sources, self._one))]
        found: list[Leaf] = []
        arrivals: dict[Socket | None, _Arrival] = {}
        early = [c for c in self._chains[hook] if c.priority <= self._settling]
        for end, flow in self._passage.ends(hook, early, cell, Flow(sources, self._one)):
            if end is not End.ACCEPT:
                found.append(_leaf(flow, _VERDICTS[end]))
                continue
            arrival = arrivals.get(flow.target)
            if arrival is None:
                arrival = arrivals[flow.target] = self._arrival(cell, flow.target)
            found += self._settled(hook, cell, arrival, flow)
        return found

    def _arrived(self, end: End, flow: Flow) -> Leaf:
        """Of a packet that IPVS took, or that was stopped before."""
        verdict = _VERDICTS.get(end) or ("delivered" if flow.target else "passed")
        here = flow.target is not None and self.is_here(flow.target.address)
        asked = (flow.remembered, flow.noted, flow.doubts)
        return Leaf(flow.sources, flow.weight, verdict, flow.target, flow.masqueraded, here, *asked)

    # --- what comes after the destination is settled ---

    def _arrival(self, cell: Cell, target: Socket | None) -> _Arrival:
        packet = rewritten(cell.packet, target) if target else cell.packet
        return _Arrival(packet, self.is_here(packet.destination), self.literals.key(packet))

    def _settled(self, hook: HookName, cell: Cell, arrival: _Arrival, flow: Flow) -> list[Leaf]:
        leaves: list[Leaf] = []
        for rest in self._rest(hook, arrival, flow, cell):
            sources = both(flow.sources, rest.sources) if rest.sources is not None else flow.sources
            if not sources:
                continue
            weight = flow.weight
            if rest.share != 1:
                weight = weight.divided(rest.share.numerator, rest.share.denominator)[0] or weight
            verdict = rest.verdict
            if verdict == "passed" and flow.target:
                verdict = "delivered"
            leaves.append(
                Leaf(
                    sources,
                    weight,
                    verdict,
                    flow.target,
                    rest.masqueraded,
                    arrival.here,
                    flow.remembered,
                    flow.noted,
                    flow.doubts + rest.doubts if rest.doubts else flow.doubts,
                )
            )
        return leaves

    def _rest(self, hook: HookName, arrival: _Arrival, flow: Flow, cell: Cell) -> tuple[_Rest, ...]:
        key = (hook, flow.target is not None, flow.mark, flow.ct_mark, flow.tracked, arrival.key)
        found = self._rests.get(key)
        if found is None:
            everybody = self.clients.node if hook == "output" else self.clients.arriving
            start = Flow(everybody, self._one, flow.mark, flow.ct_mark, flow.target, tracked=flow.tracked)
            ended, asked = self._after(hook, arrival.packet, start)
            # Lists that rules of a firewall keep are taken to be empty: the client is new to them.
            rests = _folded(_rest(one) for one in ended if one[1].remembered is None)
            if len(rests) == 1 and rests[0].sources == everybody:
                rests = [replace(rests[0], sources=None)]
            found = self._rests[key] = (tuple(rests), asked)
        if flow.target is None:
            cell.asked.update(found[1])
        return found[0]

    def _after(self, hook: HookName, packet: Packet, start: Flow) -> tuple[list[Ended], set[tuple[int, str]]]:
        pending, ended = [start], list[Ended]()
        asked: set[tuple[int, str]] = set()
        for stage, chains, seen in self._stages(hook, packet):
            cell = cell_of(seen, self.clients)
            following: list[Flow] = []
            for flow in pending:
                for end, after in self._passage.ends(stage, chains, cell, flow):
                    if end is End.ACCEPT:
                        following.append(after)
                    else:
                        ended.append((end, after))
            pending = following
            asked |= cell.asked
        return ended + [(End.ACCEPT, f) for f in pending], asked

    def _stages(self, hook: HookName, packet: Packet) -> list[_Stage]:
        """What follows where destinations are rewritten."""
        here, leaving = self.is_here(packet.destination), self._leaving(packet)
        at = self._chains
        late = [c for c in self._chains[hook] if c.priority > self._settling]
        stages: list[_Stage] = [(hook, late, leaving if hook == "output" else packet)]
        if hook == "output":
            stages.append(("postrouting", at["postrouting"], leaving))
            if here:
                loop = replace(packet, in_interface="lo", out_interface="")
                stages += [(name, [c for c in at[name] if c.kind != "nat"], loop) for name in _AGAIN]
        elif here:
            stages.append(("input", at["input"], replace(packet, out_interface="")))
        else:
            stages += [(name, at[name], leaving) for name in _ONWARD]
        return stages

    def _leaving(self, packet: Packet) -> Packet:
        here = self.is_here(packet.destination)
        way_out = "lo" if here else self.surroundings.interface(packet.destination)
        return replace(packet, out_interface=way_out)


def _sets(rules: object) -> Sets:
    match rules:
        case IptablesTable():
            return IptablesSets(rules)
        case NftTable():
            return NftSets(rules)
        case IPVS():
            return IPVSSets(rules)
    raise NotModelled(f"{type(rules).__name__}: verify reads rules of iptables and nftables, and IPVS")


def _leaf(flow: Flow, verdict: Verdict) -> Leaf:
    return Leaf(flow.sources, flow.weight, verdict, None, False, False, flow.remembered, flow.noted, flow.doubts)


def _rest(ended: Ended) -> _Rest:
    end, flow = ended
    verdict = "passed" if end is End.ACCEPT else _VERDICTS[end]
    return _Rest(flow.sources, flow.weight.value, verdict, flow.masqueraded, flow.doubts)


def _folded(rests: Iterable[_Rest]) -> list[_Rest]:
    """Those that end alike as one: wherever they come from, and whichever way an unknown thing was."""
    found: dict[tuple[object, ...], _Rest] = {}
    waiting = list(rests)
    while waiting:
        one = waiting.pop(0)
        if one.doubts:
            *others, (condition, holds) = one.doubts
            twin = (one.share, one.verdict, one.masqueraded, one.sources, (*others, (condition, not holds)))
            if twin in found:
                del found[twin]
                waiting.append(replace(one, doubts=tuple(others)))
                continue
        found[one.share, one.verdict, one.masqueraded, one.sources, one.doubts] = one
    return list(found.values())
