"""What to do in the kernel, in which order. Pure.

What guards comes first, then virtual servers and what they lead to, then the rules, then what lets packets in, and the
addresses last; what goes, goes in the reverse order. So at each step a packet for a Service's address meets the old
backends, the new ones, or a refusal where one of the two was to be refused: never what else listens on this node.

A real server that leaves a TCP virtual server gets weight 0 and stays, so that its connections go on; `sweep` deletes
it when they are gone. One of UDP or SCTP goes at once: at weight 0 it would go on receiving from the clients it has.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import NamedTuple, TypeAlias

from clusterip.dataplane.ipvs import chains, sets
from clusterip.dataplane.ipvs.book import Book, Present, Seen, Shift
from clusterip.dataplane.ipvs.chains import Jump, Shared
from clusterip.dataplane.ipvs.compile import At, RealServer, VirtualServer
from clusterip.dataplane.ipvs.config import Config
from clusterip.dataplane.ipvs.sets import Member


class Verb(Enum):
    ADD_SERVER = "add the virtual server"
    EDIT_SERVER = "change the virtual server"
    DELETE_SERVER = "delete the virtual server"
    ADD_REAL = "add the real server"
    EDIT_REAL = "change the real server"
    DELETE_REAL = "delete the real server"


class Command(NamedTuple):
    """One request to IPVS. `scheduler` and `persistent` count where a virtual server is written, `real` and `weight`
    where a real server is."""

    verb: Verb
    at: At
    scheduler: str = ""
    persistent: int = 0
    real: RealServer | None = None
    weight: int = 1


class Members(NamedTuple):
    text: str  # one input of `ipset restore`


class Servers(NamedTuple):
    commands: tuple[Command, ...]


class Rules(NamedTuple):
    text: str  # one input of `iptables-restore --noflush`


class Addresses(NamedTuple):
    """Of the dummy device. With `device` it is created first."""

    bind: tuple[str, ...] = ()
    unbind: tuple[str, ...] = ()
    device: bool = False


Step: TypeAlias = Members | Servers | Rules | Addresses
Retired: TypeAlias = Mapping[At, frozenset[RealServer]]


@dataclass(frozen=True, slots=True)
class Delta:
    steps: tuple[Step, ...] = ()
    retired: Retired = field(default_factory=dict)  # of each virtual server touched: those that now have weight 0


def load(book: Book, seen: Seen, config: Config) -> Delta:
    """From whatever is in the kernel to exactly what `book` holds; virtual servers in `exclude_cidrs` stay."""
    wanted = {server.at: server for server in book.servers}
    foreign = [ip_network(cidr) for cidr in config.exclude_cidrs]
    ours = {at for at in seen.servers if not any(ip_address(at.address) in network for network in foreign)}
    members, addresses = frozenset(book.members), frozenset(book.addresses)
    shift = Shift(
        tuple((seen.servers.get(at), wanted.get(at)) for at in sorted(wanted.keys() | ours)),
        members - seen.members,
        seen.members - members,
        addresses - seen.addresses,
        seen.addresses - addresses,
        book.shape,
    )
    missing = "".join(
        f"{sets.create(kind, config)}\n" for kind in sets.SETS if sets.name(kind, config) not in seen.sets
    )
    first = (Addresses(device=True),) if not seen.device else ()
    rest = _ordered(shift, seen.jumps, config, nat_last=seen.portals)
    return Delta((*first, *((Members(missing),) if missing else ()), *rest.steps), rest.retired)


def delta(shift: Shift, config: Config) -> Delta:
    """Only what changes, where the sets, the device and the jumps are in place."""
    return _ordered(shift, chains.jumps(), config)


def sweep(idle: Iterable[tuple[At, RealServer]]) -> Delta:
    """Delete retired real servers that have no connections any more."""
    commands = tuple(Command(Verb.DELETE_REAL, at, real=real) for at, real in sorted(idle))
    return Delta((Servers(commands),) if commands else ())


def clean_up(seen: Seen, config: Config, shared: Shared = Shared.REMOVE) -> Delta:
    """All of it away, others' rules and virtual servers apart."""
    commands = tuple(Command(Verb.DELETE_SERVER, at) for at in sorted(seen.servers) if is_ours(at, seen))
    rules = _without_rules(seen, shared)
    names = [sets.name(kind, config) for kind in sets.SETS if sets.name(kind, config) in seen.sets]
    destroyed = "".join(f"destroy {name}\n" for name in names)
    steps: list[Step] = []
    steps += [Servers(commands)] if commands else []
    steps += [Addresses(unbind=tuple(sorted(seen.addresses)))] if seen.addresses else []
    steps += [Rules(rules)] if rules else []
    steps += [Members(destroyed)] if destroyed else []
    return Delta(tuple(steps))


def _without_rules(seen: Seen, shared: Shared) -> str:
    match shared:
        case Shared.REMOVE:
            return chains.remove(seen.chains, seen.jumps)
        case Shared.EMPTY:
            return chains.remove(seen.chains, seen.jumps, emptied=chains.SHARED)
        case Shared.LEAVE:
            own = [j for j in seen.jumps if (j.table, j.spec.rpartition(" ")[2]) not in chains.SHARED]
            return chains.remove(seen.chains - chains.SHARED, own)


def is_ours(at: At, seen: Seen) -> bool:
    """By the address, or the node port, or, where the address is on another device, by the set it is in."""
    place = f"{at.address},{at.protocol.lower()}:{at.port}"
    kinds = (sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL, sets.BALANCER, sets.NODE_PORT_SCTP)
    named = any(Member(kind, place) in seen.members for kind in kinds)
    return (
        named or at.address in seen.addresses or Member(sets.NODE_PORTS[at.protocol][1], str(at.port)) in seen.members
    )


def _ordered(shift: Shift, installed: Collection[Jump], config: Config, *, nat_last: bool = False) -> Delta:
    """With `nat_last` the nat table has another mode's rules in chains of ours. They serve until the addresses are
    here, and virtual servers behind them."""
    grown: list[Command] = []
    shrunk: list[Command] = []
    retired: dict[At, frozenset[RealServer]] = {}
    for before, after in shift.servers:
        grown += _grow(before, after)
        more, at, stay = _shrink(before, after)
        shrunk += more
        retired[at] = stay
    rules = chains.rewrite(shift.shape, config, installed) if shift.shape is not None else ""
    last = ""
    if nat_last:
        last, filters, rest = rules.partition("*filter\n")
        rules = filters + rest
    steps = (
        Members(_members("add", [m for m in shift.gained if m.kind.guards], config)),
        Servers(tuple(grown)),
        Rules(rules),
        Members(_members("add", [m for m in shift.gained if not m.kind.guards], config)),
        Addresses(bind=tuple(sorted(shift.bound))),
        Rules(last),
        Members(_members("del", [m for m in shift.lost if not m.kind.guards], config)),
        Servers(tuple(shrunk)),
        Addresses(unbind=tuple(sorted(shift.unbound))),
        Members(_members("del", [m for m in shift.lost if m.kind.guards], config)),
    )
    return Delta(tuple(step for step in steps if any(step)), retired)


def _members(verb: str, members: Collection[Member], config: Config) -> str:
    ordered = sorted(members, key=lambda m: (sets.RANK[m.kind], m.text), reverse=verb == "del")
    return "".join(f"{verb} {sets.name(m.kind, config)} {m.text}\n" for m in ordered)


def _grow(before: Present | None, after: VirtualServer | None) -> Iterator[Command]:
    if after is None:
        return
    if before is None or before.parameters != (after.scheduler, after.persistent):
        verb = Verb.EDIT_SERVER if before else Verb.ADD_SERVER
        yield Command(verb, after.at, after.scheduler, after.persistent)
    weights = before.weights if before else {}
    for real in after.reals:
        if weights.get(real) != 1:
            yield Command(Verb.EDIT_REAL if real in weights else Verb.ADD_REAL, after.at, real=real)


def _shrink(before: Present | None, after: VirtualServer | None) -> tuple[list[Command], At, frozenset[RealServer]]:
    """What goes, from where, and what then stands there with weight 0."""
    if before is None:
        assert after is not None, "a change has a side"
        return [], after.at, frozenset()
    at = before.at
    if after is None:
        return [Command(Verb.DELETE_SERVER, at)], at, frozenset()
    leaving = [real for real in before.weights if real not in after.reals]
    if at.protocol != "TCP":
        return [Command(Verb.DELETE_REAL, at, real=real) for real in leaving], at, frozenset()
    stopped = [Command(Verb.EDIT_REAL, at, real=real, weight=0) for real in leaving if before.weights[real]]
    return stopped, at, frozenset(leaving)
