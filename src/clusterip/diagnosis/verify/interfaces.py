"""By which interface packets come in: the node's own by none; of others it is one more thing that rules tell apart."""

from msgspec.structs import replace

from clusterip.diagnosis.verify.chain import Cell
from clusterip.diagnosis.verify.flow import Doubts, Flow, among
from clusterip.diagnosis.verify.sources import split
from clusterip.diagnosis.walk.branch import Condition

_KEY = "comes in by "
ELSEWHERE = "other0"  # an interface that no rule names


def came_in(pattern: str, cell: Cell, flow: Flow) -> tuple[Flow | None, Flow | None]:
    """`pattern` is a name, or a prefix and "+"."""
    if pattern == "+":
        return flow, None
    if cell.packet.in_interface is not None:
        return (flow, None) if covers(pattern, cell.packet.in_interface) else (None, flow)
    clients = cell.clients
    known = _known(pattern, flow.doubts)
    others = split(flow.sources, clients.node)[1]
    if known is False or pattern == "lo" or not others:
        return None, flow
    if clients.pod_interface and covers(pattern, clients.pod_interface):
        return among(flow, *split(flow.sources, clients.pods))
    others = split(others, clients.pods)[1] if clients.pod_interface else others
    if not others:
        return None, flow
    if known is True:
        return among(flow, *split(flow.sources, others))
    question = Condition(
        f"{_KEY}{pattern}", "unknown", f"it comes in by {pattern}", f"it does not come in by {pattern}"
    )
    return (
        replace(flow, sources=others, doubts=(*flow.doubts, (question, True))),
        replace(flow, doubts=(*flow.doubts, (question, False))),
    )


def covers(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("+") else name == pattern


def is_interface(condition: Condition) -> bool:
    return condition.key.startswith(_KEY)


def interface_of(doubts: Doubts) -> str | None:
    """One that comes in so; None: nothing was asked. No name of ours is one that rules know."""
    asked = [(c.key.removeprefix(_KEY), holds) for c, holds in doubts if is_interface(c)]
    if not asked:
        return None
    names = [pattern.replace("+", "0") for pattern, holds in asked if holds]
    return max(names, key=len, default=ELSEWHERE)


def possible(doubts: Doubts) -> bool:
    """Whether one interface can answer so."""
    name = interface_of(doubts)
    return name is None or all(covers(c.key.removeprefix(_KEY), name) == h for c, h in doubts if is_interface(c))


def _known(pattern: str, doubts: Doubts) -> bool | None:
    for condition, holds in doubts:
        if not is_interface(condition):
            continue
        asked = condition.key.removeprefix(_KEY)
        if asked == pattern:
            return holds
        if holds and not asked.endswith("+"):
            return covers(pattern, asked)
    return None
