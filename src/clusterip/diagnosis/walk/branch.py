"""One of the ways a packet may have gone so far, and how a way splits in two.

A way splits by chance, which multiplies its probability, or by something that is not known, which is then noted as a
condition: the probabilities of all ways with the same conditions sum up to one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet

# affinity: of a client, earlier connections decide; order: of programs, nothing that is written down tells it;
# assumed: as good as never so, and taken as not so unless that decides the answer
ConditionKind: TypeAlias = Literal["affinity", "unmodelled", "unknown", "order", "assumed"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Something the answer hangs on that is not known. Equal keys are the same question."""

    key: str
    kind: ConditionKind = field(compare=False)
    yes: str = field(compare=False)  # what is so if it holds: "10.96.0.1 is an address of this node"
    no: str = field(compare=False)
    object: str = field(default="", compare=False)  # of what an unmodelled thing is part: a rule


class Chance(NamedTuple):
    """A match that is true now and then. `long_run`: a share over many connections, not a chance of each."""

    share: Fraction
    long_run: bool = False


class Unless(NamedTuple):
    """Yes where `condition` does not hold."""

    condition: Condition


Answer: TypeAlias = bool | Chance | Condition | Unless  # to a match: yes, no, sometimes, not known


class Fired(NamedTuple):
    """A rule that did something to the packet. `rule` is its index in the chain; -1: the chain's policy, or no rule."""

    hook: str
    program: str  # "iptables-nft", "nft", "ipvs"; "": none of them
    table: str
    chain: str
    rule: int
    effect: str
    before: Packet
    after: Packet
    text: str = ""  # where `rule` is -1: what decided; else what the rule says besides


class Trail(NamedTuple):
    """What fired, the last first."""

    fired: Fired
    earlier: "Trail | None"


class Branch(Struct, frozen=True):
    packet: Packet
    probability: Fraction = Fraction(1)
    when: dict[Condition, bool] = {}  # in the order they came up; never changed
    long_run: bool = False
    trail: Trail | None = None
    note: str = ""  # why nothing is known of what follows

    def fires(self, fired: Fired) -> "Branch":
        return replace(self, packet=fired.after, trail=Trail(fired, self.trail))

    def likely(self, chance: Fraction, *, long_run: bool = False) -> "Branch":
        return replace(self, probability=self.probability * chance, long_run=self.long_run or long_run)

    def given(self, condition: Condition, holds: bool) -> "Branch":
        return replace(self, when={**self.when, condition: holds})


class End(Enum):
    ACCEPT = "accept"
    DROP = "drop"
    REJECT = "reject"
    FELL_THROUGH = "fell through"  # the end of a chain, or return
    TAKEN = "taken"  # by IPVS, which sends it on itself
    LOST = "lost"  # what comes next is not known


def split(branch: Branch, answer: Answer) -> tuple[Branch | None, Branch | None]:
    """The way where the answer is yes, and the one where it is no; None: there is none."""
    match answer:
        case True:
            return branch, None
        case False:
            return None, branch
        case Chance(share, long_run):
            yes = branch.likely(share, long_run=long_run) if share else None
            return yes, branch.likely(1 - share, long_run=long_run) if share != 1 else None
        case Condition():
            known = branch.when.get(answer)
            if known is not None:
                return (branch, None) if known else (None, branch)
            return branch.given(answer, True), branch.given(answer, False)
        case Unless(condition):
            no, yes = split(branch, condition)
            return yes, no


def inverted(answer: Answer) -> Answer:
    match answer:
        case bool():
            return not answer
        case Chance(share, long_run):
            return Chance(1 - share, long_run)
        case Condition():
            return Unless(answer)
        case Unless(condition):
            return condition


def folded(branches: list[Branch]) -> list[Branch]:
    """Ways that led to the same packet, as one: by chance, or whichever way an unknown thing was."""
    if len(branches) < 2:
        return branches
    found: dict[tuple[Packet, frozenset[tuple[Condition, bool]]], Branch] = {}
    for branch in branches:
        _fold(found, branch)
    return list(found.values())


def _fold(found: dict[tuple[Packet, frozenset[tuple[Condition, bool]]], Branch], branch: Branch) -> None:
    conditions = frozenset(branch.when.items())
    same = found.pop((branch.packet, conditions), None)
    if same:
        likelier = max(same, branch, key=lambda b: b.probability)
        both = same.probability + branch.probability
        branch = replace(likelier, probability=both, long_run=same.long_run or branch.long_run)
    for condition in _droppable(branch):
        holds = branch.when[condition]
        other = found.get((branch.packet, conditions - {(condition, holds)} | {(condition, not holds)}))
        if other and other.probability == branch.probability:
            del found[other.packet, frozenset(other.when.items())]
            fewer = {c: h for c, h in branch.when.items() if c != condition}
            usual = other if holds else branch  # where less was the case
            long_run = other.long_run or branch.long_run
            _fold(found, replace(usual, when=fewer, long_run=long_run))
            return
    found[branch.packet, conditions] = branch


def _droppable(branch: Branch) -> Iterable[Condition]:
    """Of a client's memories, of which there may be hundreds, only the last asked can turn out not to matter."""
    last = next(reversed(branch.when), None)
    return [c for c in branch.when if c.kind != "affinity" or c is last]
