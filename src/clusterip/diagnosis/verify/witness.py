"""A packet that shows a difference, and what the walk of that one packet says of it."""

from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

from clusterip.diagnosis.outcomes import Reached, reached
from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.verify.compare import Fate, Fates
from clusterip.diagnosis.verify.flow import Socket
from clusterip.diagnosis.verify.literals import Place
from clusterip.diagnosis.verify.report import Witness
from clusterip.diagnosis.verify.sources import address_of, kind_of
from clusterip.diagnosis.walk.branch import Fired
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.nat import parts
from clusterip.services.route import Source


class Shown(NamedTuple):
    """What became of one packet."""

    fates: Fates  # of a client that no list remembers
    remembers: bool
    by: tuple[Fired, ...]  # what rewrote its destination


def witness(client: int, place: Place, interface: str | None, *, ipv6: bool) -> Witness:
    kind, address = kind_of(client), address_of(client, ipv6=ipv6)
    source = f"{kind.value}:[{address}]" if ipv6 else f"{kind.value}:{address}"
    destination = f"{socket(place.address, place.port)}/{place.protocol}"
    if place.protocol == "icmp":
        destination = f"icmp:{place.address}"
    return Witness(source, destination, interface or "")


def shown(client: int, place: Place, interface: str | None, hooks: Hooks, *, ipv6: bool) -> Shown:
    kind, address = kind_of(client), address_of(client, ipv6=ipv6)
    packet = Packet(
        protocol="ipv6-icmp" if ipv6 and place.protocol == "icmp" else place.protocol,
        source=address,
        destination=place.address,
        destination_port=place.port,
        in_interface="" if kind is Source.NODE else interface,
        out_interface="",
    )
    found, _ = reached(hooks.from_node(packet) if kind is Source.NODE else hooks.arriving(packet))
    fates: Fates = defaultdict(Fraction)
    for one in found:
        if not one.remembered:
            fates[_fate(one, hooks)] += one.branch.probability
    return Shown(dict(fates), any(r.remembered for r in found), tuple(f for r in found for f in _rewriting(r)))


def _fate(one: Reached, hooks: Hooks) -> Fate:
    if one.verdict != "delivered":
        return Fate(one.verdict)
    address, port = parts(one.backend)
    here = hooks.surroundings.is_local(address) is True
    return Fate("delivered", Socket(address, int(port)), None if here else one.branch.packet.source_rewritten)


def _rewriting(one: Reached) -> list[Fired]:
    found = []
    trail = one.branch.trail
    while trail is not None:
        if trail.fired.effect.startswith(("dnat", "redirect", "ipvs")):
            found.append(trail.fired)
        trail = trail.earlier
    return found
