"""Sets of packets through the rules of one chain and of those it jumps to; the same for iptables and nftables."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.flow import Flow, lost
from clusterip.diagnosis.verify.literals import Literals
from clusterip.diagnosis.verify.sources import Clients, both
from clusterip.diagnosis.walk.branch import End
from clusterip.diagnosis.walk.chain import Act, Next
from clusterip.errors import ClusterIPError
from clusterip.rulesets.iptables import values as v

MOST_FLOWS = 4096  # of one chain; more are questions that nobody will read

Ended: TypeAlias = tuple[End, Flow]
Judged: TypeAlias = tuple[Flow, Act]


class TooMany(ClusterIPError):
    """The rules ask more than can be told apart."""


class Cell(NamedTuple):
    """Destinations that no rule tells apart, by one of them. `packet.source` is "": the flow holds the sources."""

    packet: Packet
    clients: Clients
    summaries: "dict[tuple[int, str, int], list[Ended]]"  # by table, chain and mark: for all clients
    certain: frozenset[v.Match]  # what every rule of its Service asks again, and all of its packets meet
    asked: set[tuple[int, str]]  # which chains (by table) were walked, which sets looked up: what ports may matter
    virtual: Packet | None = None  # as it was before IPVS took it; None: it did not


class Sets(Protocol):
    """One table."""

    @property
    def program(self) -> str: ...

    @property
    def table(self) -> str: ...

    def collect(self, literals: Literals) -> None:
        """What the rules compare destinations with."""

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        """The rules that `packet` might meet, by index and in order; None: there is no such chain."""

    def direct(self, chain: str, cell: Cell, flow: Flow, above: tuple[str, ...]) -> list[Ended] | None:
        """The ways out of a chain of a form that comes up for every Service, found quicker; None: it is another."""

    def judge(self, chain: str, rule: int, cell: Cell, flow: Flow) -> list[Judged]:
        """All that the rule may do with it."""


def through(rules: Sets, chain: str, cell: Cell, flow: Flow, above: tuple[str, ...] = ()) -> list[Ended]:
    """Every way out of `chain`. What does not hang on how a flow came here is found once for all clients."""
    plain = flow.weight.whole and not (flow.doubts or flow.noted or flow.remembered or flow.ct_mark) and flow.tracked
    if not plain:
        return _found(rules, chain, cell, flow, above)
    key = (id(rules), chain, flow.mark)
    summary = cell.summaries.get(key)
    if summary is None:
        everybody = replace(flow, sources=cell.clients.all)
        summary = cell.summaries[key] = _found(rules, chain, cell, everybody, above)
    if flow.sources == cell.clients.all:
        return summary
    found: list[Ended] = []
    for end, after in summary:
        sources = both(after.sources, flow.sources)
        if sources:
            found.append((end, after if sources == after.sources else replace(after, sources=sources)))
    return found


def _found(rules: Sets, chain: str, cell: Cell, flow: Flow, above: tuple[str, ...]) -> list[Ended]:
    cell.asked.add((id(rules), chain))
    circle = chain in above
    direct = None if circle else rules.direct(chain, cell, flow, above)
    if direct is not None:
        return direct
    applicable = None if circle else rules.applicable(chain, cell.packet)
    if applicable is None:
        why = "is reached in a circle of jumps" if circle else "is not in the input"
        return [(End.LOST, lost(flow, f"{rules.table}/{chain}", f"chain {chain} of table {rules.table} {why}"))]
    return walked(rules, chain, cell, flow, (applicable, above))


def walked(rules: Sets, chain: str, cell: Cell, flow: Flow, by: tuple[Iterable[int], tuple[str, ...]]) -> list[Ended]:
    """Through some rules of a chain, which was reached from others: `by` says which and from which."""
    applicable, above = by
    pending, ended = [flow], list[Ended]()
    for rule in applicable:
        following: list[Flow] = []
        for before in pending:
            for after, act in rules.judge(chain, rule, cell, before):
                if isinstance(act, Next):
                    following.append(after)
                elif isinstance(act, End):
                    ended.append((act, after))
                else:
                    for end, inner in through(rules, act.chain, cell, after, (*above, chain)):
                        if end is End.FELL_THROUGH and not act.goto:
                            following.append(inner)
                        else:
                            ended.append((end, inner))
        pending = following
        if len(pending) + len(ended) > MOST_FLOWS:
            raise TooMany(
                f"chain {chain} of table {rules.table}: it tells more than {MOST_FLOWS} kinds of packet apart"
            )
        if not pending:
            return ended
    ended += [(End.FELL_THROUGH, f) for f in pending]
    return ended
