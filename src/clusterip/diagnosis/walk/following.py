"""A walk that takes, wherever the model leaves something open, the way that the kernel took."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.walk.branch import Branch, End
from clusterip.diagnosis.walk.chain import NEXT, Act, Into, Judged, Rules
from clusterip.diagnosis.walk.hooks import BaseChain, HookName, Hooks
from clusterip.rulesets.traced import Headers, Traced

Met: TypeAlias = Mapping[tuple[str, int], Sequence[Traced]]  # by chain and rule, of one table at one hook


@dataclass(frozen=True, slots=True)
class Following:
    """The rules of one table, whose open questions a trace has answered. What is certain stays as the model has it."""

    inner: Rules
    met: Met
    destination: tuple[str, int]  # where the packet was going in the end

    @property
    def program(self) -> str:
        return self.inner.program

    @property
    def table(self) -> str:
        return self.inner.table

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        return self.inner.applicable(chain, packet)

    def told(self, chain: str, rule: int) -> tuple[str, str, int]:
        return self.inner.told(chain, rule)

    def judge(self, chain: str, rule: int, hook: str, branch: Branch) -> list[Judged]:
        judged = self.inner.judge(chain, rule, hook, branch)
        if len(judged) < 2:
            return judged
        met = [one for one in judged if one[1] is not NEXT or one[0].trail is not branch.trail]
        told = self.met.get((chain, rule), ())
        if not told:
            return [one for one in judged if one not in met] or judged
        return [one for one in met if self._as_told(one, told)] or met or judged

    def _as_told(self, judged: Judged, told: Sequence[Traced]) -> bool:
        after, act = judged
        verdicts = {event.verdict for event in told}
        if "" not in verdicts and _verdict(act) not in verdicts:  # "": iptables-legacy tells none
            return False
        if act is End.ACCEPT and after.packet.destination_rewritten:
            return (after.packet.destination, after.packet.destination_port) == self.destination
        return True


def _verdict(act: Act) -> str:
    """As a trace tells it. What stops a packet with an answer drops it, too."""
    match act:
        case Into(chain, goto):
            return f"{'goto' if goto else 'jump'} {chain}"
        case End():
            return _VERDICTS.get(act, "")
        case _:
            return "continue"


_VERDICTS = {End.ACCEPT: "accept", End.DROP: "drop", End.REJECT: "drop", End.FELL_THROUGH: "return"}


class _Base(NamedTuple):
    hook: HookName
    program: str
    table: str
    chain: str


def following(hooks: Hooks, told: Iterable[tuple[str, str, Traced]], landed: Headers) -> Hooks:
    """`told`: each event with the program and table it belongs to, as the rules of `hooks` name them."""
    met = _by_base(hooks, told)
    destination = (landed.destination, landed.destination_port)
    visited = list(met)

    def followed(base: BaseChain) -> BaseChain:
        return base._replace(rules=Following(base.rules, met.get(_base(base), {}), destination))

    def when(base: BaseChain) -> tuple[int, int]:
        """Of one priority those first that were told of first."""
        return base.priority, visited.index(_base(base)) if _base(base) in met else len(visited)

    chains = {hook: tuple(followed(base) for base in sorted(bases, key=when)) for hook, bases in hooks.chains.items()}
    return replace(hooks, chains=chains, in_order=True)


def _by_base(hooks: Hooks, told: Iterable[tuple[str, str, Traced]]) -> dict[_Base, dict[tuple[str, int], list[Traced]]]:
    """Rules met, by the base chain whose turn it was: two may jump to the same chain, and fare differently there.

    Each base chain's events come in a row.
    """
    bases = {_base(base) for chains in hooks.chains.values() for base in chains}
    met: dict[_Base, dict[tuple[str, int], list[Traced]]] = {}
    turn: dict[tuple[HookName, str, str], _Base] = {}
    for program, table, event in told:
        place = (event.hook, program, table)
        if (own := _Base(*place, event.chain)) in bases:
            turn[place] = own
        if place in turn:
            rules = met.setdefault(turn[place], {})
            if event.rule is not None:
                rules.setdefault((event.chain, event.rule), []).append(event)
    return met


def _base(base: BaseChain) -> _Base:
    return _Base(base.hook, base.rules.program, base.rules.table, base.chain)
