"""A set of packets on their way that the rules have not told apart so far."""

from fractions import Fraction
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.sources import Sources
from clusterip.diagnosis.walk.branch import Answer, Chance, Condition, Unless

TOLERANCE = Fraction(1, 1 << 31)


class Weight:
    """A probability, and what it becomes when it is divided further: the same divisions come up for each Service."""

    __slots__ = ("_divided", "_near", "value", "whole")

    def __init__(self, value: Fraction) -> None:
        self.value = value
        self.whole = value == 1
        self._divided: dict[tuple[int, int], tuple[Weight | None, Weight | None]] = {}
        self._near: dict[int, bool] = {}

    def divided(self, numerator: int, denominator: int) -> "tuple[Weight | None, Weight | None]":
        """The part, and the rest; None: there is none."""
        key = (numerator, denominator)
        found = self._divided.get(key)
        if found is None:
            share = Fraction(numerator, denominator)
            part = Weight(self.value * share) if share else None
            found = self._divided[key] = (part, Weight(self.value * (1 - share)) if share != 1 else None)
        return found

    def is_one_in(self, number: int) -> bool:
        """As near as the kernel's 31 bits come to it."""
        found = self._near.get(number)
        if found is None:
            found = self._near[number] = abs(self.value - Fraction(1, number)) <= TOLERANCE
        return found

    def __repr__(self) -> str:
        return f"Weight({self.value})"


class Memory(NamedTuple):
    """Where a client is remembered, and for how many seconds; 0: for ever."""

    name: str  # of the list or set
    seconds: int


class Socket(NamedTuple):
    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


Doubts: TypeAlias = tuple[tuple[Condition, bool], ...]


class Flow(Struct, frozen=True, gc=False):
    sources: Sources
    weight: Weight
    mark: int = 0
    ct_mark: int = 0
    target: Socket | None = None  # its destination, if that was rewritten
    masqueraded: bool = False
    tracked: bool = True
    remembered: Memory | None = None  # the client is in this list; None: in none that was asked for
    noted: tuple[str, ...] = ()  # lists that the client was written into
    doubts: Doubts = ()  # what nobody knows, and how it was taken to be


def divided(flow: Flow, answer: Answer) -> tuple[Flow | None, Flow | None]:
    """Where the answer is yes, and where it is no; None: nowhere."""
    match answer:
        case True:
            return flow, None
        case False:
            return None, flow
        case Chance(share):
            part, rest = flow.weight.divided(share.numerator, share.denominator)
            return (
                replace(flow, weight=part) if part else None,
                replace(flow, weight=rest) if rest else None,
            )
        case Unless(condition):
            no, yes = divided(flow, condition)
            return yes, no
        case Condition():
            known = dict(flow.doubts).get(answer)
            if known is not None:
                return (flow, None) if known else (None, flow)
            return (
                replace(flow, doubts=(*flow.doubts, (answer, True))),
                replace(flow, doubts=(*flow.doubts, (answer, False))),
            )


def among(flow: Flow, inside: Sources, outside: Sources) -> tuple[Flow | None, Flow | None]:
    """The flow cut in two."""
    if not outside:
        return flow, None
    if not inside:
        return None, flow
    return replace(flow, sources=inside), replace(flow, sources=outside)


def swapped(negated: bool, division: tuple[Flow | None, Flow | None]) -> tuple[Flow | None, Flow | None]:
    return (division[1], division[0]) if negated else division


def remembering(flow: Flow, memory: Memory) -> tuple[Flow | None, Flow | None]:
    """A client is new to every list, or it is in one of them."""
    if flow.remembered is not None:
        return (flow, None) if flow.remembered == memory else (None, flow)
    return replace(flow, remembered=memory), flow


def lost(flow: Flow, key: str, what: str) -> Flow:
    """Nobody knows what comes next. `what` names the thing that is not modelled."""
    return replace(flow, doubts=(*flow.doubts, (Condition(key, "unmodelled", "", "", what), True)))


def as_packet(packet: Packet, flow: Flow) -> Packet:
    """For questions that do not hang on the source."""
    if not (flow.mark or flow.ct_mark or flow.masqueraded) and flow.tracked:
        return packet
    state = packet.state if flow.tracked else "UNTRACKED"
    return replace(packet, mark=flow.mark, ct_mark=flow.ct_mark, state=state, source_rewritten=flow.masqueraded)
