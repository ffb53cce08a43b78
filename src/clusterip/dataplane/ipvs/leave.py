"""How IPVS mode goes while another serves already: what connections are on stays until they are gone. Pure.

Nothing new comes to it: the other mode's rules see a packet first, and every real server has weight 0. So what is
without a connection now is without one for ever.
"""

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass

from clusterip.dataplane.ipvs import sets
from clusterip.dataplane.ipvs.book import Seen
from clusterip.dataplane.ipvs.compile import At, RealServer
from clusterip.dataplane.ipvs.config import Config
from clusterip.dataplane.ipvs.delta import Command, Members, Servers, Step, Verb, is_ours
from clusterip.dataplane.ipvs.sets import Member

_ADMITTED = (sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL, sets.BALANCER, sets.BALANCER_LOCAL)


@dataclass(frozen=True, slots=True)
class Departure:
    steps: tuple[Step, ...] = ()
    addresses: tuple[str, ...] = ()  # that no virtual server needs any more
    stay: int = 0  # virtual servers that connections are on


def quiesce(seen: Seen, config: Config) -> tuple[Step, ...]:
    """No real server of ours takes a new connection; affinity ends with that, too."""
    commands = tuple(
        Command(Verb.EDIT_REAL, at, real=real, weight=0)
        for at, server in sorted(seen.servers.items(), key=lambda item: item[0])
        if is_ours(at, seen)
        for real, weight in server.weights.items()
        if weight
    )
    return (Servers(commands),) if commands else ()


def depart(seen: Seen, idle: Set[tuple[At, RealServer]], serving: Set[RealServer], config: Config) -> Departure:
    """`idle`: real servers without connections. `serving`: backends of UDP and SCTP Services. Of those a flow has no
    end that we could wait for: it goes with its backend."""
    commands: list[Command] = []
    gone: list[At] = []
    stay: list[At] = []
    for at, server in sorted(seen.servers.items(), key=lambda item: item[0]):
        if not is_ours(at, seen):
            continue
        leaving = [r for r in server.weights if (at, r) in idle or (at.protocol != "TCP" and r not in serving)]
        if len(leaving) == len(server.weights):
            gone.append(at)
            commands.append(Command(Verb.DELETE_SERVER, at))
        else:
            stay.append(at)
            commands += [Command(Verb.DELETE_REAL, at, real=real) for real in leaving]
    needed = {at.address for at in stay}
    addresses = tuple(
        sorted({at.address for at in gone if Member(sets.ADDRESSES, at.address) in seen.members} - needed)
    )
    denied = "".join(f"del {sets.name(m.kind, config)} {m.text}\n" for m in _admitting(gone, seen))
    steps: list[Step] = []
    # What else listens on this node must not be reached at an address that is still here.
    steps += [Members(denied)] if denied else []
    steps += [Servers(tuple(commands))] if commands else []
    return Departure(tuple(steps), addresses, len(stay))


def _admitting(gone: Collection[At], seen: Seen) -> Iterator[Member]:
    for at in gone:
        for kind in _ADMITTED:
            member = Member(kind, f"{at.address},{at.protocol.lower()}:{at.port}")
            if member in seen.members:
                yield member
