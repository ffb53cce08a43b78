"""Leaves that hang on something unknown: one world for each way it may be."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from clusterip.diagnosis.verify.chain import TooMany
from clusterip.diagnosis.verify.flow import Doubts
from clusterip.diagnosis.verify.interfaces import interface_of, is_interface, possible
from clusterip.diagnosis.verify.ways import Leaf
from clusterip.diagnosis.walk.branch import Condition

_MOST_QUESTIONS = 8


class World(NamedTuple):
    """Leaves of packets that come in by one interface (None: by any), with what is unknown taken to be one way."""

    interface: str | None
    came_in: bool  # by an interface that rules name, as no packet of the node's own does
    unknown: Doubts
    leaves: list[Leaf]


def worlds(leaves: Sequence[Leaf]) -> Iterator[list[World]]:
    """Those of one interface together. Which interface it is makes packets different; the rest nobody knows."""
    if not any(leaf.doubts for leaf in leaves):
        yield [World(None, False, (), list(leaves))]
        return
    asked = list(dict.fromkeys(c for leaf in leaves for c, _ in leaf.doubts))
    interfaces = [c for c in asked if is_interface(c)]
    unknown = [c for c in asked if not is_interface(c)]
    if len(interfaces) > _MOST_QUESTIONS or len(unknown) > _MOST_QUESTIONS:
        raise TooMany(f"more than {_MOST_QUESTIONS} things are asked that nothing tells: {told(asked[:3])} ...")
    for came in _ways(interfaces):
        if possible(came):
            named = any(holds for _, holds in came)
            yield [World(interface_of(came), named, rest, _in(leaves, {*came, *rest})) for rest in _ways(unknown)]


def _ways(conditions: Sequence[Condition]) -> Iterator[Doubts]:
    certain = [bool(c.yes) for c in conditions]  # what nobody can walk further from is no question
    for holds in product(*((False, True) if open_ else (True,) for open_ in certain)):
        yield tuple(zip(conditions, holds, strict=True))


def _in(leaves: Sequence[Leaf], world: set[tuple[Condition, bool]]) -> list[Leaf]:
    return [leaf for leaf in leaves if world.issuperset(leaf.doubts)]


def told(conditions: Iterable[Condition]) -> str:
    """The rule, where one is the matter."""
    return "; ".join(dict.fromkeys(": ".join(filter(None, (c.object, c.yes))) for c in conditions))
