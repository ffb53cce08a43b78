"""eBPF mode: what a socket was seen to become, beside what the maps say of it, and the rest of its way. Pure.

The kernel tells nothing of its programs at the socket; where the first packet went tells what they did.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from clusterip.diagnosis.answer import Step, Verdict
from clusterip.diagnosis.observed import Difference, Observation, observe
from clusterip.diagnosis.outcomes import step
from clusterip.diagnosis.packet import socket
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.sockets import Chosen, Place, connected, refused
from clusterip.diagnosis.trace import Tracer, told
from clusterip.diagnosis.walked import Walked
from clusterip.rulesets.traced import Headers, Traced


class Seen(NamedTuple):
    """Of one probe."""

    sent: Headers | None  # its first packet, before any rule; None: none left the socket, or it was not seen
    answer: str  # "connected", "answered", "refused", "silence" ...
    events: Sequence[Traced]
    landed: Headers | None  # as it arrived


def observe_sent(tracer: Tracer, client: Client, to: Target, seen: Seen) -> Observation:
    """Of a probe from `client` to `to`. `tracer` knows of no other connections."""
    given = tracer.given(client, to)
    became = Place(seen.sent.destination, seen.sent.destination_port) if seen.sent else None
    if became is not None and became != (to.address, to.port):
        return _given(tracer, client, to, given, became, seen)
    by_rules = _by_rules(tracer.by_rules(client, to), seen)
    if given is None or (became is None and seen.answer != "refused"):
        return by_rules
    if became is not None:
        what = f"the socket kept {socket(*became)}, which the maps would have translated: its process is in none of "
        what += "the cgroups that are served, or another program came first"
        verdict = "passed" if by_rules.verdict == "unknown" else by_rules.verdict
        return replace(by_rules, verdict=verdict, difference=Difference(what))
    return _refused(tracer.walk(client, to), given)


def _given(tracer: Tracer, client: Client, to: Target, given: Chosen | None, became: Place, seen: Seen) -> Observation:
    """The socket has another destination, and the rules judged packets to that."""
    backend = socket(*became)
    rest = _by_rules(tracer.by_rules(client, Target(to.protocol, *became)), seen)
    walked = tracer.walk(client, to)
    choice = next((c for c in given.choices if (c.address, c.port) == became), None) if given else None
    first = step(connected(walked.packet, became, choice.told if choice else ""), walked.programs)
    difference = rest.difference
    if choice is None:
        known = ", ".join(socket(c.address, c.port) for c in given.choices) if given else ""
        has = f"the maps have {known or 'no backend'}" if given else "the maps have nothing for it"
        difference = Difference(f"the socket was given {backend}, and {has}", None, first)
    return replace(
        rest,
        verdict=_verdict(rest.verdict, seen.answer),
        backend=rest.backend or backend,
        steps=(first, *rest.steps),
        modelled=(first, *rest.modelled) if choice else rest.modelled,
        difference=difference,
    )


def _verdict(by_rules: Verdict, answer: str) -> Verdict:
    """What meets no rule of the node's (a bridge hands it over) leaves no word but the answer."""
    if by_rules == "passed" or (by_rules == "unknown" and answer in ("connected", "answered")):
        return "delivered"
    return by_rules


def _refused(walked: Walked, given: Chosen) -> Observation:
    """connect() failed, and no packet left."""
    found: Step = step(refused(walked.packet, given), walked.programs)
    difference = None
    possible = bool(given.lost) or not given.choices
    if not possible:
        what = "connect() was refused at the socket, and the maps have backends for it"
        difference = Difference(what, None, found)
    return Observation(verdict="rejected", steps=(found,), modelled=(found,) if possible else (), difference=difference)


def _by_rules(walked: Walked, seen: Seen) -> Observation:
    return observe(walked, told(walked).outcomes, seen.events, seen.landed)
