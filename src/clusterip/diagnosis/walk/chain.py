"""A packet's way through the rules of one chain and of those it jumps to; the same for iptables and nftables."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.walk.branch import Branch, End, Fired, folded


class Next(NamedTuple):
    """On with the next rule."""


class Into(NamedTuple):
    chain: str
    goto: bool = False  # its end is this chain's end too


NEXT = Next()
Act: TypeAlias = Next | Into | End
Judged: TypeAlias = tuple[Branch, Act]
Ended: TypeAlias = tuple[End, Branch]


class Rules(Protocol):
    """One table."""

    @property
    def program(self) -> str:
        """ "iptables-nft", "nft": whose rules they are."""

    @property
    def table(self) -> str: ...

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        """The rules that `packet` might meet, by index and in order; None: there is no such chain."""

    def judge(self, chain: str, rule: int, hook: str, branch: Branch) -> list[Judged]:
        """All that the rule may do with it."""

    def told(self, chain: str, rule: int) -> tuple[str, str, int]:
        """The rule's text, its file and line."""


def through(rules: Rules, chain: str, hook: str, branch: Branch, above: tuple[str, ...] = ()) -> list[Ended]:
    """Every way out of `chain`, which was reached from the chains `above`."""
    circle = chain in above
    applicable = None if circle else rules.applicable(chain, branch.packet)
    if applicable is None:
        why = "is reached in a circle of jumps" if circle else "is not in the input"
        return [(End.LOST, replace(branch, note=f"chain {chain} of table {rules.table} {why}"))]
    pending, ended = [branch], list[Ended]()
    for rule in applicable:
        following: list[Branch] = []
        for before in pending:
            for after, act in rules.judge(chain, rule, hook, before):
                match act:
                    case Next():
                        following.append(after)
                    case End():
                        ended.append((act, after))
                    case Into(target, goto):
                        effect, packet = f"{'goto' if goto else 'jump'} {target}", after.packet
                        here = Fired(hook, rules.program, rules.table, chain, rule, effect, packet, packet)
                        for end, back in _into(rules, target, here, after, (*above, chain)):
                            if end is End.FELL_THROUGH and not goto:
                                following.append(back)
                            else:
                                ended.append((end, back))
        pending = folded(following)
        if not pending:
            break
    fell = [b for end, b in ended if end is End.FELL_THROUGH]
    others = [one for one in ended if one[0] is not End.FELL_THROUGH]
    return others + [(End.FELL_THROUGH, b) for b in folded([*fell, *pending])]


def _into(rules: Rules, target: str, here: Fired, start: Branch, above: tuple[str, ...]) -> list[Ended]:
    """Through the chain `target`. A jump that led to nothing is no part of the story."""
    jumped = start.fires(here)
    return [
        (end, replace(b, trail=start.trail) if end is End.FELL_THROUGH and b.trail is jumped.trail else b)
        for end, b in through(rules, target, here.hook, jumped, above)
    ]
