"""A packet's way through the rules of one chain and of those it jumps to; the same for iptables and nftables."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.walk.branch import Branch, End, Fired, folded

DEEPEST = 64  # the kernel refuses deeper nesting, and circles


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


def through(rules: Rules, chain: str, hook: str, branch: Branch, depth: int = 0) -> list[Ended]:
    """Every way out of `chain`."""
    applicable = rules.applicable(chain, branch.packet) if depth <= DEEPEST else None
    if applicable is None:
        why = "is not in the input" if depth <= DEEPEST else "is reached in a circle of jumps"
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
                        fired = after.fires(
                            Fired(
                                hook,
                                rules.program,
                                rules.table,
                                chain,
                                rule,
                                f"{'goto' if goto else 'jump'} {target}",
                                after.packet,
                                after.packet,
                            )
                        )
                        for end, inner in through(rules, target, hook, fired, depth + 1):
                            # A jump that led to nothing is no part of the story.
                            told = replace(inner, trail=after.trail) if inner.trail is fired.trail else inner
                            if end is not End.FELL_THROUGH:
                                ended.append((end, inner))
                            elif goto:
                                ended.append((end, told))
                            else:
                                following.append(told)
        pending = folded(following)
        if not pending:
            break
    return ended + [(End.FELL_THROUGH, b) for b in pending]
