"""The way back: from the backend that was reached to the client."""

from dataclasses import replace as with_
from typing import Literal, NamedTuple

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.question import Client
from clusterip.diagnosis.walk.branch import Branch, End, Fired
from clusterip.diagnosis.walk.chain import Ended
from clusterip.diagnosis.walk.hooks import Hooks, Socket, Translation
from clusterip.diagnosis.walk.surroundings import Surroundings, within


class WayBack(NamedTuple):
    branch: Branch  # the likeliest way
    end: End
    # It does not come by this node's rules, so nothing translates it back: it leaves another node, it is handed from
    # port to port of a bridge that asks no rules, or backend and client are neighbours on a link outside.
    direct: Literal["", "elsewhere", "bridged", "beside"] = ""


def way_back(hooks: Hooks, client: Client, first: Packet, last: Packet) -> WayBack:
    """`first` as the client sent it, `last` as the backend got it."""
    known = hooks.surroundings
    back = Packet(
        protocol=last.protocol,
        source=last.destination,
        source_port=last.destination_port,
        destination=last.source,
        destination_port=last.source_port,
        in_interface=hooks.surroundings.interface(last.destination),
        state="ESTABLISHED",
        ct_mark=last.ct_mark,
        destination_rewritten=last.destination_rewritten,
        source_rewritten=last.source_rewritten,
        reply=True,
    )
    answers = Branch(back).fires(Fired("backend", "", "", "", -1, "answers", back, back))
    if not last.source_rewritten and client.kind == "outside" and _elsewhere(known, last.destination):
        return WayBack(answers, End.ACCEPT, "elsewhere")
    if not last.source_rewritten and client.kind == "outside" and link(known, client.address, last.destination):
        return WayBack(answers, End.ACCEPT, "beside")
    if not last.source_rewritten and client.kind == "pod" and _bridged(known, client.address, last.destination):
        return WayBack(answers, End.ACCEPT, "bridged")
    returning = with_(
        hooks,
        translation=Translation(
            Socket(first.source, first.source_port) if last.source_rewritten else None,
            Socket(first.destination, first.destination_port) if last.destination_rewritten else None,
        ),
        # Its own address, known or not, is where the answer to the node itself ends.
        surroundings=with_(known, local=known.local | {first.source}) if client.kind == "node" else known,
    )
    here = known.is_local(last.destination) is True
    ended = returning.from_node(back) if here else returning.arriving(back)
    return _likeliest(ended, answers)


def _elsewhere(known: Surroundings, backend: str) -> bool:
    """Known to be behind another node."""
    route = known.route(backend)
    return bool(route and route.via)


def link(known: Surroundings, client: str, backend: str) -> str:
    """The interface behind which both are known to be neighbours, and not this node's own pods; "": they are not."""
    one, other = known.route(client), known.route(backend)
    if one is None or other is None or one.via or other.via or client == backend or backend in known.local:
        return ""
    ours = any(within(address, r) for address in (client, backend) for r in known.pod_ranges)
    anywhere = one.network.endswith("/0") or other.network.endswith("/0")
    return "" if ours or anywhere or one.interface != other.interface else one.interface


def _bridged(known: Surroundings, client: str, backend: str) -> bool:
    """Known to be neighbours on a bridge whose frames meet no rules."""
    one, other = known.route(client), known.route(backend)
    if one is None or other is None or client == backend or one.via or other.via:
        return False
    return one.interface == other.interface and one.interface in known.silent_bridges


def _likeliest(ended: list[Ended], before: Branch) -> WayBack:
    """With what happened at the backend in front."""
    end, branch = min(ended, key=lambda e: (e[0] is not End.ACCEPT, len(e[1].when), -e[1].probability))
    told = []
    trail = branch.trail
    while trail is not None:
        told.append(trail.fired)
        trail = trail.earlier
    whole = before
    for fired in reversed(told):
        whole = whole.fires(fired)
    if end is End.ACCEPT:
        whole = whole.fires(Fired("client", "", "", "", -1, "receives", branch.packet, branch.packet))
    return WayBack(replace(whole, when=branch.when, note=branch.note), end)
