"""eBPF mode: what the maps do with a client's socket before there is a packet. Pure.

A socket that is given a backend sends its packets there by itself: what follows is the walk of a packet to the backend,
and nothing is translated back; getpeername() alone still says what was asked for.
"""

from collections.abc import Callable
from dataclasses import replace as with_
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from clusterip.dataplane.ebpf.layout import (
    NODE_ONLY,
    Contents,
    Frontend,
    Service,
    frontend_key,
    read_place,
    read_service,
    slot_key,
)
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.outcomes import Reached
from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.reply import WayBack, way_back
from clusterip.diagnosis.walk.branch import Branch, Condition, Fired, Trail
from clusterip.diagnosis.walked import Walked
from clusterip.services.table import Protocol

NAMED = 5  # slots
_PROTOCOLS: dict[str, Protocol] = {"tcp": "TCP", "udp": "UDP"}


class Place(NamedTuple):
    """Where a socket is connected to."""

    address: str
    port: int


class Choice(NamedTuple):
    """A backend that the socket may be given."""

    address: str
    port: int
    share: Fraction
    told: str  # where the maps say so


class Chosen(NamedTuple):
    """What the maps have for the socket; without choices it is refused."""

    service: Service
    choices: tuple[Choice, ...]
    lost: tuple[int, ...]  # slots that are not there: who draws one is refused


def chosen(facts: Facts, client: Client, packet: Packet) -> Chosen | None:
    """None: the sockets leave it to the rules, or it is no socket of the node's that asks."""
    contents = (facts.sockets or {}).get("IPv6" if packet.ipv6 else "IPv4")
    protocol = _PROTOCOLS.get(packet.protocol)
    if contents is None or protocol is None or client.kind == "outside" or packet.reply:
        return None
    if facts.hooks is not None and f"connect{6 if packet.ipv6 else 4}" not in facts.hooks:
        return None
    value = contents["services"].get(frontend_key(Frontend(packet.destination, packet.destination_port, protocol)))
    if value is None:
        return None
    service = read_service(value)
    if service.flags & NODE_ONLY and client.kind != "node":
        return None
    return _choices(contents, service)


def _choices(contents: Contents, service: Service) -> Chosen:
    found, lost = [], []
    for index in range(service.backends):
        place = contents["slots"].get(slot_key(service.set, index))
        if place is None:
            lost.append(index)
        else:
            told = f"set {service.set.hex()}, slot {index} of {service.backends}"
            found.append(Choice(*read_place(place), Fraction(1, service.backends), told))
    return Chosen(service, tuple(found), tuple(lost))


def through(walk: Callable[[Client, Target], Walked], client: Client, packet: Packet, given: Chosen) -> Walked:
    """`walk`: of a packet by the rules alone, here to what the socket is given. Nobody is asked about the way back
    where nobody is reached."""
    if not given.choices:
        asked = walk(client, Target(packet.protocol, packet.destination, packet.destination_port))
        return with_(
            asked,
            found=(_refused(packet, given),),
            granted=(),
            back=None,
            tracked=None,
        )
    ways = [(choice, walk(client, Target(packet.protocol, choice.address, choice.port))) for choice in given.choices]
    found = [_reached(one, packet, choice, given.service) for choice, way in ways for one in way.found]
    found += [_refused(packet, given)] if given.lost else []
    answered = next((way for _, way in ways if any(_arrives(one) for one in way.found)), ways[0][1])
    arrived = next((one for one in answered.found if _arrives(one)), None)
    back = way_back(answered.hooks, client, answered.packet, arrived.branch.packet) if arrived else None
    return with_(
        answered,
        packet=packet,
        found=tuple(sorted(found, key=lambda r: (-r.branch.probability, r.backend))),
        granted=tuple(dict.fromkeys(c for _, way in ways for c in way.granted)),
        back=_named(back, packet, answered.facts.hooks) if back else None,
    )


def _arrives(one: Reached) -> bool:
    return one.verdict in ("passed", "delivered")


def _reached(one: Reached, packet: Packet, choice: Choice, service: Service) -> Reached:
    """With the socket's choice in front of the packet's way."""
    backend = socket(choice.address, choice.port)
    start = Branch(packet).fires(connected(packet, Place(choice.address, choice.port), choice.told))
    branch = replace(
        one.branch,
        probability=one.branch.probability * choice.share,
        trail=_after(start.trail, one.branch.trail),
    )
    if service.affinity:
        branch = branch.given(_memory(service), False)
    return Reached("delivered", backend, branch) if _arrives(one) else Reached(one.verdict, one.backend, branch)


def _refused(packet: Packet, given: Chosen) -> Reached:
    """Who draws a slot that is not there; all, where none is."""
    branch = Branch(packet).fires(refused(packet, given))
    if given.choices:
        branch = branch.likely(Fraction(len(given.lost), given.service.backends))
        if given.service.affinity:
            branch = branch.given(_memory(given.service), False)
    return Reached("rejected", "", branch)


def _memory(service: Service) -> Condition:
    yes = f"it has connected within {service.affinity} s: to the backend it had then"
    return Condition(f"sockets {service.id.hex()}", "affinity", yes, "the client is not remembered")


def connected(packet: Packet, to: Place, told: str) -> Fired:
    """The socket that would send `packet` is given another destination."""
    sent = replace(packet, destination=to.address, destination_port=to.port)
    return Fired("socket", "", "ebpf", "services", -1, f"connect {socket(*to)}", packet, sent, told)


def refused(packet: Packet, given: Chosen) -> Fired:
    slots = ", ".join(map(str, given.lost[:NAMED])) + (" ..." if len(given.lost) > NAMED else "")
    lacks = f"set {given.service.set.hex()} lacks slot {slots} of {given.service.backends}"
    text = f"{lacks if given.lost else 'the Service has no endpoints'}: connect() fails with ECONNREFUSED"
    return Fired("socket", "", "ebpf", "services", -1, "reject", packet, packet, text)


def is_connected(one: Reached) -> bool:
    """A socket was given the backend, before there was a packet."""
    trail = one.branch.trail
    while trail is not None and trail.earlier is not None:
        trail = trail.earlier
    return trail is not None and trail.fired.hook == "socket"


def gives_back(packet: Packet, hooks: frozenset[str] | None) -> bool:
    """A program makes the client's socket say what was asked for. `hooks`: where there are some; None: not told."""
    return hooks is None or f"{_call(packet)}{6 if packet.ipv6 else 4}" in hooks


def _call(packet: Packet) -> str:
    return "recvmsg" if packet.protocol == "udp" else "getpeername"


def _named(back: WayBack, packet: Packet, hooks: frozenset[str] | None) -> WayBack:
    if not gives_back(packet, hooks):
        return back
    asked = f"{_call(packet)} {socket(packet.destination, packet.destination_port)}"
    arrived = back.branch.packet
    return back._replace(branch=back.branch.fires(Fired("socket", "", "ebpf", "origins", -1, asked, arrived, arrived)))


def _after(first: Trail | None, later: Trail | None) -> Trail | None:
    fired = []
    while later is not None:
        fired.append(later.fired)
        later = later.earlier
    for one in reversed(fired):
        first = Trail(one, first)
    return first
