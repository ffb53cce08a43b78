"""What the API's service table makes of every packet for its frontends. `services.route` is asked; it alone decides."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from clusterip.diagnosis.verify import virtual
from clusterip.diagnosis.verify.literals import Place
from clusterip.diagnosis.verify.sources import KINDS, Clients, Sources, address_of, kind_of, split, union
from clusterip.services.route import Delivered, Outcomes, Packet, Policy, Source, route
from clusterip.services.table import Entry, Frontend, FrontendKind


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry and the frontend of it that a place is."""

    entry: Entry
    frontend: Frontend


@dataclass(frozen=True, slots=True)
class Expectation:
    sources: Sources
    outcomes: Outcomes  # those of a client that is none of the backends
    may_pass: bool = False  # kube-proxy lets these packets go where it cannot deliver them
    near: frozenset[str] = frozenset()  # addresses of backends on this node: only they can call themselves here


class Mode(NamedTuple):
    """What decides, besides the service table."""

    policy: Policy
    virtual: bool = False  # IPVS mode, which differs from the specification


def claims(entries: Iterable[Entry], policy: Policy) -> Mapping[Place, list[Claim]]:
    """Every place that the table answers for. Where several entries claim one, any of them may answer."""
    found: dict[Place, list[Claim]] = defaultdict(list)
    for entry in entries:
        for frontend in entry.frontends():
            for address in (frontend.address,) if frontend.address else sorted(policy.node_port_addresses):
                place = Place(address, frontend.protocol.lower(), frontend.port)
                found[place].append(Claim(entry, frontend))
    return found


def expectations(claim: Claim, place: Place, clients: Clients, mode: Mode, *, here: bool) -> list[Expectation]:
    """Of every client. `here`: the address is one of the node's."""
    by_outcome: dict[tuple[Outcomes, bool], list[Sources]] = defaultdict(list)
    for kind in KINDS:
        may_pass = kind is Source.NODE and claim.frontend.kind.external and not here
        for part in _parts(claim, clients, clients.of(kind)):
            outcomes = _routed(claim, place, part, mode, clients)
            undelivered = not any(isinstance(o, Delivered) for o in outcomes)
            by_outcome[outcomes, may_pass and undelivered].append(part)
    near = frozenset(b.address for b in (*claim.entry.cluster, *claim.entry.local) if b.local)
    return [Expectation(union(parts), *key, near) for key, parts in by_outcome.items()]


def _parts(claim: Claim, clients: Clients, of: Sources) -> list[Sources]:
    """Clients that the table treats alike."""
    entry = claim.entry
    if claim.frontend.kind is not FrontendKind.LOAD_BALANCER or not entry.source_ranges:
        return [of] if of else []
    ranges, own = clients.within(entry.source_ranges), clients.within(entry.load_balancer_ips)
    return [part for within in split(of, ranges) for part in split(within, own) if part]


def _routed(claim: Claim, place: Place, part: Sources, mode: Mode, clients: Clients) -> Outcomes:
    """Of one client that stands for the others; only a backend that calls itself is another case."""
    entry = claim.entry
    backends = {b.address for b in (*entry.cluster, *entry.local)}
    client = some(part, backends, clients)
    address = address_of(client, ipv6=clients.ipv6)
    packet = Packet(kind_of(client), address, place.address, claim.frontend.port, entry.protocol)
    if mode.virtual:
        outcomes = virtual.routed(entry, claim.frontend, packet, mode.policy)
    else:
        outcomes = route((entry,), packet, mode.policy)
    if address not in backends:
        return outcomes
    others = {o.masqueraded for o in outcomes if isinstance(o, Delivered) and o.address != address}
    base = others == {True}
    return frozenset(Delivered(o.address, o.port, base) if isinstance(o, Delivered) else o for o in outcomes)


def some(part: Sources, without: set[str], clients: Clients) -> int:
    """One of these clients, none at these addresses if that can be; no network's own address."""
    for first, last in part:
        for one in range(first, min(last, first + len(without) + 1) + 1):
            if address_of(one, ipv6=clients.ipv6) not in without and (one > first or first == last):
                return one
    return part[0][0]
