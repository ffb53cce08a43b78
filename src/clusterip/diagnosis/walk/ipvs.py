"""IPVS: virtual services, and which real server a new connection gets.

Source: net/netfilter/ipvs (ip_vs_core.c, ip_vs_sched.c and the schedulers' own files).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk.branch import Branch, Condition, End, Fired
from clusterip.diagnosis.walk.chain import Judged
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.rulesets.host import Settings
from clusterip.rulesets.ipvs import Connections, RealServer, Services, VirtualService

_BINDING = frozenset({"dh", "lblc", "lblcr"})  # schedulers that bind a destination to one real server
_QUIESCENT = "net.ipv4.vs.expire_quiescent_template"
_CONNTRACK = "net.ipv4.vs.conntrack"  # of both families


class Choice(NamedTuple):
    server: RealServer
    share: Fraction
    long_run: bool  # a share over many connections; False: what the next one gets


@dataclass(frozen=True, slots=True)
class IPVS:
    """Stands in the hooks like a chain of one rule."""

    services: Services | None  # None: not told; it has those that are `expected`
    connections: Connections | None
    settings: Settings
    surroundings: Surroundings
    expected: frozenset[tuple[str, str]] = frozenset()  # ("10.96.0.10", "udp:53"): named by the proxy's sets

    @property
    def program(self) -> str:
        return "ipvs"

    @property
    def table(self) -> str:
        return "ipvs"

    def applicable(self, chain: str, packet: Packet) -> Iterable[int]:
        return range(1) if self._service(packet) or self._untold(packet) else ()

    def _untold(self, packet: Packet) -> bool:
        """A set of the proxy's names it, and no listing of its servers was given."""
        asked = (packet.destination, f"{packet.protocol}:{packet.destination_port}")
        return self.services is None and asked in self.expected

    def told(self, chain: str, rule: int) -> tuple[str, str, int]:
        return "", "", 0

    def judge(self, chain: str, rule: int, hook: str, branch: Branch) -> list[Judged]:
        service = self._service(branch.packet)
        if service is None and self._untold(branch.packet):
            return [(replace(branch, note="IPVS takes it, and its services are not in the input"), End.LOST)]
        if service is None:
            return [(branch, End.FELL_THROUGH)]
        known = self._known(service, branch.packet)
        if known:
            return [self._sent(service, known, hook, branch, "as its connection")]
        found: list[Judged] = []
        if service.persistent:
            branch, found = self._remembered(service, hook, branch)
        choices = chosen(service)
        if not choices:
            fired = self._fired(service, hook, branch.packet, branch.packet, "reject", "no real server takes it")
            return [*found, (branch.fires(fired), End.REJECT)]
        if service.scheduler in _BINDING:
            return found + self._bound(service, [c.server for c in choices], hook, branch)
        for choice in choices:
            likely = branch.likely(choice.share, long_run=choice.long_run)
            found.append(self._sent(service, choice.server, hook, likely, ""))
        return found

    def _service(self, packet: Packet) -> VirtualService | None:
        for protocol, address, port in (
            (packet.protocol, packet.destination, packet.destination_port),
            (packet.protocol, packet.destination, 0),
            ("fwm", "", packet.mark),
        ):
            found = self.services.get(protocol, address, port) if self.services else None
            if found and (protocol != "fwm" or packet.mark):
                return found
        return None

    def _known(self, service: VirtualService, packet: Packet) -> RealServer | None:
        """Of a connection that is listed, or of a client that is remembered."""
        for c in self.connections.connections if self.connections else ():
            same = (c.client, c.virtual) == (
                packet.source,
                packet.destination,
            ) and c.protocol == packet.protocol.upper()
            if not same or c.virtual_port not in (packet.destination_port, 0):
                continue
            if c.client_port == packet.source_port if c.client_port else service.persistent:
                server = _server(service, c.destination, c.destination_port)
                if server and (c.client_port or self.serves_remembered(server)):
                    return server
        return None

    def _remembered(self, service: VirtualService, hook: str, branch: Branch) -> tuple[Branch, list[Judged]]:
        """The ways of clients that are remembered, and the branch of one that is not."""
        found: list[Judged] = []
        if self.connections is not None:
            return branch, found  # none of them is this client's
        for server in service.servers:
            if not self.serves_remembered(server):
                continue
            remembers = Condition(
                f"persistent {service.frontend} {server.address}:{server.port}",
                "affinity",
                f"the client is remembered with {socket(server.address, server.port)}",
                f"the client is not remembered with {socket(server.address, server.port)}",
            )
            found.append(self._sent(service, server, hook, branch.given(remembers, True), "as it is remembered"))
            branch = branch.given(remembers, False)
        return branch, found

    def _bound(self, service: VirtualService, servers: Sequence[RealServer], hook: str, branch: Branch) -> list[Judged]:
        """One of them for every client, and which is nowhere told."""
        found: list[Judged] = []
        for server in servers[:-1]:
            what = f"{service.scheduler} has bound {service.frontend.address} to {socket(server.address, server.port)}"
            bound = Condition(f"bound {what}", "unknown", what, what.replace(" has bound ", " has not bound "))
            found.append(self._sent(service, server, hook, branch.given(bound, True), ""))
            branch = branch.given(bound, False)
        return [*found, self._sent(service, servers[-1], hook, branch, "")]

    def serves_remembered(self, server: RealServer) -> bool:
        """Whether a remembered client still gets it: one of weight 0 unless the kernel forgets such memories."""
        return server.weight != 0 or self.settings.number(_QUIESCENT) != 1

    @property
    def tracks(self) -> bool:
        """Whether conntrack sees what IPVS sends on; if not, no nat table is asked, so nothing masquerades it. Where
        nothing tells, it is as proxies have it: on."""
        return self.settings.number(_CONNTRACK) != 0

    def _sent(self, service: VirtualService, to: RealServer, hook: str, branch: Branch, why: str) -> Judged:
        before = branch.packet
        if to.forward != "Masq":
            return replace(branch, note=f"IPVS forwards by {to.forward}, which is not modelled"), End.LOST
        port = to.port or before.destination_port
        after = replace(before, destination=to.address, destination_port=port, destination_rewritten=True)
        if not self.tracks:
            after = replace(after, state="UNTRACKED")
        fired = self._fired(service, hook, before, after, f"ipvs {socket(to.address, port)}", why)
        here = self.surroundings.is_local(to.address) is True
        return branch.fires(fired), End.ACCEPT if here else End.TAKEN

    def _fired(
        self, service: VirtualService, hook: str, before: Packet, after: Packet, effect: str, why: str = ""
    ) -> Fired:
        protocol, address, port = service.frontend
        listed = f"{protocol} {socket(address, port)} {service.scheduler}".rstrip()
        lasting = f" persistent {service.persistent}" if service.persistent else ""
        text = f"{listed}{lasting}" + (f" ({why})" if why else "")
        return Fired(hook, self.program, self.table, "", -1, effect, before, after, text)


def _server(service: VirtualService, address: str, port: int) -> RealServer | None:
    return next((s for s in service.servers if (s.address, s.port) == (address, port)), None)


def chosen(service: VirtualService) -> list[Choice]:
    """Who gets the next connection of a client that is not remembered; []: nobody, it is refused."""
    servers = [s for s in service.servers if s.weight != 0]
    if not servers:
        return []
    if len(servers) == 1:
        return [Choice(servers[0], Fraction(1), False)]
    pick = _SCHEDULERS.get(service.scheduler or "wlc", _by_weight)
    return pick(servers)


def _evenly(servers: Sequence[RealServer]) -> list[Choice]:
    return [Choice(s, Fraction(1, len(servers)), True) for s in servers]


def _by_weight(servers: Sequence[RealServer]) -> list[Choice]:
    """Weighted round robin; the hashes over many clients, each of which stays with one; the least-connection kinds
    as long as connections last equally long."""
    weights = [_weight(s) for s in servers]
    return [Choice(s, Fraction(w, sum(weights)), True) for s, w in zip(servers, weights, strict=True)]


def _heaviest(servers: Sequence[RealServer]) -> list[Choice]:
    return [Choice(max(servers, key=_weight), Fraction(1), False)]


def _overflow(servers: Sequence[RealServer]) -> list[Choice]:
    """The heaviest that has fewer connections than its weight."""
    if any(s.active is None for s in servers):
        return _by_weight(servers)
    free = [s for s in servers if (s.active or 0) < _weight(s)]
    return _heaviest(free) if free else []


def _weight(server: RealServer) -> int:
    return 1 if server.weight is None else server.weight


_SCHEDULERS: dict[str, Callable[[Sequence[RealServer]], list[Choice]]] = {
    "rr": _evenly,
    "lc": _evenly,
    "fo": _heaviest,
    "ovf": _overflow,
}
