"""A walk that takes, wherever the model leaves something open, the way that the kernel took."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

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


def following(hooks: Hooks, told: Iterable[tuple[str, str, Traced]], landed: Headers) -> Hooks:
    """`told`: each event with the program and table it belongs to, as the rules of `hooks` name them."""
    met: dict[tuple[str, str, str], dict[tuple[str, int], list[Traced]]] = {}
    visited: list[tuple[str, str, str, str]] = []
    for program, table, event in told:
        visited.append((event.hook, program, table, event.chain))
        if event.rule is not None:
            rules = met.setdefault((event.hook, program, table), {})
            rules.setdefault((event.chain, event.rule), []).append(event)
    destination = (landed.destination, landed.destination_port)

    def followed(hook: HookName, base: BaseChain) -> BaseChain:
        place = (hook, base.rules.program, base.rules.table)
        return base._replace(rules=Following(base.rules, met.get(place, {}), destination))

    def when(hook: HookName, base: BaseChain) -> tuple[int, int]:
        """Of one priority those first that were told of first."""
        place = (hook, base.rules.program, base.rules.table, base.chain)
        return base.priority, visited.index(place) if place in visited else len(visited)

    chains = {
        hook: tuple(followed(hook, base) for base in sorted(bases, key=partial(when, hook)))
        for hook, bases in hooks.chains.items()
    }
    return replace(hooks, chains=chains, in_order=True)
