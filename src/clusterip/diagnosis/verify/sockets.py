"""The maps of eBPF mode against the service table: for every frontend that sockets are served at. Pure.

A frontend that the maps do not have is no difference: the rules answer for it, and they are looked at by themselves. So
it is with one that no program looks up, but for those on the loopback's addresses, which no rule serves.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from clusterip.dataplane.ebpf.layout import Contents, Frontend, frontend_key, read_frontend, read_service
from clusterip.dataplane.ebpf.outcomes import walk
from clusterip.diagnosis.packet import socket
from clusterip.diagnosis.verify.report import Difference, Kind, Verification, Witness
from clusterip.diagnosis.walk.surroundings import is_loopback
from clusterip.services.notation import Destination
from clusterip.services.route import Delivered, Outcomes, Packet, Passed, Policy, Rejected, Source, route
from clusterip.services.table import Backend, Entry

CLIENTS = {Source.POD: "pods", Source.NODE: "the node"}
_ALL = Fraction(1)


@dataclass(frozen=True, slots=True)
class Clients:
    """Addresses that stand for all, in the family that is looked at."""

    pod: str
    node: str

    def of(self, source: Source) -> str:
        return f"pod:{self.pod}" if source is Source.POD else f"node:{self.node}" if self.node else "node"


def clients(pod_networks: Sequence[str], policy: Policy, *, ipv6: bool) -> Clients:
    ours = [
        n for n in map(ipaddress.ip_network, pod_networks) if n.version == (6 if ipv6 else 4) and n.num_addresses > 2
    ]
    return Clients(str(ours[0][2]) if ours else "2001:db8::2" if ipv6 else "192.0.2.2", policy.node_ip)


def verify_sockets(
    table: Sequence[Entry], contents: Contents, policy: Policy, these: Clients, hooks: frozenset[str] | None = None
) -> Verification:
    """Of one family. `hooks`: where programs run; None: not told, taken for all. Counts no frontends: those of the
    rules are the same."""
    found: list[Difference] = []
    for frontend in sorted(map(read_frontend, contents["services"])):
        claims = _claims(table, frontend, policy)
        if hooks is None or hooks & _looking_up(frontend):
            found += _differences(frontend, claims, contents, (policy, these))
        if hooks is not None and is_loopback(frontend.address):
            found += _lost(frontend, claims, _needed(frontend) - hooks, (policy, these))
    return Verification(verdict="different" if found else "equal", differences=tuple(found))


def _looking_up(frontend: Frontend) -> frozenset[str]:
    """The hooks of which any leads a socket there: one of IPv6 connects to ::ffff:a.b.c.d as well."""
    return _needed(frontend) | {"connect6"}


def _needed(frontend: Frontend) -> frozenset[str]:
    """The hooks of which each is needed by some client that uses the address as it stands."""
    calls = ("connect", "sendmsg") if frontend.protocol == "UDP" else ("connect",)
    return frozenset(f"{call}{'6' if ':' in frontend.address else '4'}" for call in calls)


def _lost(
    frontend: Frontend, claims: list[Entry], missing: frozenset[str], by: tuple[Policy, Clients]
) -> Iterator[Difference]:
    """A node port on the loopback's address, for the node's own processes: sockets alone serve it."""
    policy, these = by
    policy = Policy(policy.node_port_addresses | {frontend.address}, policy.node_ip)
    packet = Packet(Source.NODE, these.node or "0.0.0.0", *frontend)  # noqa: S104
    wanted = _where(route((claims[0],), packet, policy)) if claims and missing else frozenset({Passed()})
    if wanted != {Passed()}:
        told = f"nothing without {', '.join(sorted(missing))}, and no rule serves the loopback"
        yield _difference("missing", frontend, claims, (_words(wanted), told), (_ALL, [Source.NODE], these))


def _claims(table: Sequence[Entry], asked: Frontend, policy: Policy) -> list[Entry]:
    served = asked.address in policy.node_port_addresses or is_loopback(asked.address)
    return [
        entry
        for entry in table
        for f in entry.frontends()
        if (f.port, f.protocol) == (asked.port, asked.protocol)
        and (f.address == asked.address or (not f.address and served))
    ]


def _differences(
    frontend: Frontend, claims: list[Entry], contents: Contents, by: tuple[Policy, Clients]
) -> Iterator[Difference]:
    policy, these = by
    if is_loopback(frontend.address):
        policy = Policy(policy.node_port_addresses | {frontend.address}, policy.node_ip)
    affinity = read_service(contents["services"][frontend_key(frontend)]).affinity
    if claims and affinity not in {entry.affinity_seconds for entry in claims}:
        told = (f"affinity of {claims[0].affinity_seconds} s", f"affinity of {affinity} s")
        yield _difference("affinity", frontend, claims, told, (_ALL, list(CLIENTS), these))
    seen: dict[tuple[Kind, Outcomes, Outcomes, Fraction], list[Source]] = {}
    for source in CLIENTS:
        packet = Packet(source, these.pod if source is Source.POD else these.node or "0.0.0.0", *frontend)  # noqa: S104
        kernel = _where(walk(contents, packet))
        expected = [_where(route((entry,), packet, policy)) for entry in claims] or [frozenset({Passed()})]
        if kernel != {Passed()} and kernel not in expected:
            kind, share = _kind(expected[0], kernel) if claims else ("extra", _ALL)
            seen.setdefault((kind, expected[0], kernel, share), []).append(source)
    for (kind, wanted, kernel, share), sources in seen.items():
        yield _difference(kind, frontend, claims, (_words(wanted), _words(kernel)), (share, sources, these))


def _difference(
    kind: Kind,
    frontend: Frontend,
    claims: list[Entry],
    told: tuple[str, str],
    of: tuple[Fraction, list[Source], Clients],
) -> Difference:
    place, (share, sources, these) = str(Destination(*frontend)), of
    return Difference(
        kind=kind,
        object=f"service {claims[0].name}" if claims else place,
        frontend=place,
        clients=", ".join(CLIENTS[s] for s in sources),
        api=told[0],
        kernel=f"sockets: {told[1]}",
        witness=Witness(these.of(sources[0]), place),
        share=share,
    )


def _where(outcomes: Outcomes) -> Outcomes:
    """A socket connects with its client's own address: nothing is masqueraded, and nothing need be."""
    return frozenset(Delivered(o.address, o.port, False) if isinstance(o, Delivered) else o for o in outcomes)


def _kind(expected: Outcomes, kernel: Outcomes) -> tuple[Kind, Fraction]:
    wanted, found = ({o for o in outcomes if isinstance(o, Delivered)} for outcomes in (expected, kernel))
    if wanted and found - wanted:
        return "stale-backend", Fraction(len(found - wanted), len(kernel))
    if wanted and Rejected() in kernel:
        return "rejected", Fraction(1, len(kernel))
    if wanted and found:
        return "missing-backend", Fraction(len(wanted - found), len(wanted))
    return "verdict", _ALL


def _words(outcomes: Outcomes) -> str:
    backends = [Backend(o.address, o.port) for o in outcomes if isinstance(o, Delivered)]
    told = [f"1/{len(outcomes)} {socket(b.address, b.port)}" for b in sorted(backends, key=str)]
    rest = {Rejected(): "refused", Passed(): "nothing"}
    told += [rest.get(o, "dropped") for o in outcomes if not isinstance(o, Delivered)]
    return ", ".join(told)
