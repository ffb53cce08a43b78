"""Forms of chains that come up once for every Service and backend, so that their rules need not be judged one by one.

What a form says of a chain is all that its rules do; a chain of any other form is walked.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from clusterip.diagnosis.verify.flow import Socket
from clusterip.diagnosis.walk.nat import parts
from clusterip.rulesets.iptables import values as v

_ALWAYS = 1 << 31


class Endpoint(NamedTuple):
    """Two rules: what calls itself goes through a chain; all is sent to one place."""

    address: str
    calls_itself: str  # the chain
    asks: tuple[v.Match, ...]
    target: Socket


class Spread(NamedTuple):
    """From rule `after` on, each rule jumps to an endpoint, by chance or always."""

    after: int
    numerators: tuple[int, ...]  # of 2**31
    endpoints: tuple[Endpoint, ...]
    asks: frozenset[tuple[v.Match, ...]]  # what the endpoints ask


Form: TypeAlias = Endpoint | Spread | None
UNREAD: Final = Spread(0, (), (), frozenset())


def form(chain: str, rules_of: Callable[[str], Sequence[v.Rule]]) -> Form:
    rules = rules_of(chain)
    return _endpoint(rules) or _spread(rules, rules_of)


def _endpoint(rules: Sequence[v.Rule]) -> Endpoint | None:
    if len(rules) != 2:
        return None
    first, second = rules
    match _asked(first), first.target, second.target:
        case (v.Source(network, False),), v.Jump(chain), v.DNAT(to):
            address, _, length = network.partition("/")
            place, port = parts(to)
            if length == ("128" if ":" in address else "32") and port.isdecimal() and place and "-" not in place:
                return Endpoint(address, chain, _asked(second), Socket(place, int(port)))
    return None


def _spread(rules: Sequence[v.Rule], rules_of: Callable[[str], Sequence[v.Rule]]) -> Spread | None:
    found: list[tuple[int, Endpoint]] = []
    for rule in reversed(rules):
        step = _step(rule, rules_of)
        if step is None:
            break
        found.append(step)
    if not found:
        return None
    found.reverse()
    numerators, endpoints = zip(*found, strict=True)
    return Spread(len(rules) - len(found), numerators, endpoints, frozenset(e.asks for e in endpoints))


def _step(rule: v.Rule, rules_of: Callable[[str], Sequence[v.Rule]]) -> tuple[int, Endpoint] | None:
    if not isinstance(rule.target, v.Jump):
        return None
    match _asked(rule):
        case ():
            numerator = _ALWAYS
        case (v.Random(chance, False),):
            numerator = chance
        case _:
            return None
    endpoint = _endpoint(rules_of(rule.target.chain))
    return (numerator, endpoint) if endpoint else None


def _asked(rule: v.Rule) -> tuple[v.Match, ...]:
    return tuple(m for m in rule.matches if type(m) is not v.Comment and type(m) is not v.NfAcct)
