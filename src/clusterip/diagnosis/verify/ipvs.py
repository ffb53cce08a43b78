"""Sets of packets against IPVS: every real server that a new connection, or a remembered client, may be given."""

from collections.abc import Iterable

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.verify.chain import Cell, Ended, Judged
from clusterip.diagnosis.verify.flow import Flow, Memory, Socket, lost, remembering
from clusterip.diagnosis.verify.literals import Literals
from clusterip.diagnosis.walk.branch import End
from clusterip.diagnosis.walk.chain import NEXT
from clusterip.diagnosis.walk.ipvs import IPVS
from clusterip.rulesets.ipvs import RealServer, VirtualService

_REGARDLESS = frozenset({"rr", "lc"})  # schedulers that do not ask for weights


class IPVSSets:
    """Stands in the hooks like a chain of one rule."""

    def __init__(self, of: IPVS) -> None:
        self._of = of
        self.program, self.table = of.program, of.table
        services = of.services.services if of.services else ()
        self._services = {_key(s): s for s in services}

    def collect(self, literals: Literals) -> None:
        for protocol, address, port in self._services:
            if address and port:
                literals.named.setdefault(address, set()).add((protocol, port))

    def serves(self, packet: Packet) -> bool:
        return self._service(packet) is not None

    def applicable(self, chain: str, packet: Packet) -> Iterable[int] | None:
        return range(1) if self.serves(packet) else ()

    def direct(self, chain: str, cell: Cell, flow: Flow, above: tuple[str, ...]) -> list[Ended] | None:
        return None

    def judge(self, chain: str, rule: int, cell: Cell, flow: Flow) -> list[Judged]:
        service = self._service(cell.packet)
        if service is None:
            return [(flow, NEXT)]
        judged: list[Judged] = []
        rest: Flow | None = flow
        if service.persistent:
            for server in service.servers:
                if rest is not None and self._of.serves_remembered(server):
                    known, rest = remembering(rest, _memory(service, server))
                    judged += [self._sent(service, server, cell, known)] if known else []
        if rest is None:
            return judged
        servers = [(s, weight) for s in service.servers if (weight := _weight(service, s))]
        if not servers:
            return [*judged, (rest, End.REJECT)]
        total = sum(weight for _, weight in servers)
        for server, weight in servers:
            part = rest.weight.divided(weight, total)[0]
            noted = (*rest.noted, _memory(service, server).name) if service.persistent else rest.noted
            if part is not None:
                judged.append(self._sent(service, server, cell, replace(rest, weight=part, noted=noted)))
        return judged

    def _service(self, packet: Packet) -> VirtualService | None:
        found = self._services.get((packet.protocol, packet.destination, packet.destination_port))
        return found or self._services.get((packet.protocol, packet.destination, 0))

    def _sent(self, service: VirtualService, to: RealServer, cell: Cell, flow: Flow) -> Judged:
        if to.forward != "Masq":
            return lost(flow, f"ipvs {to.forward}", f"IPVS forwards by {to.forward}"), End.LOST
        port = to.port or cell.packet.destination_port
        here = self._of.surroundings.is_local(to.address) is True
        sent = replace(flow, target=Socket(to.address, port), tracked=flow.tracked and self._of.tracks)
        return sent, End.ACCEPT if here else End.TAKEN


def _key(service: VirtualService) -> tuple[str, str, int]:
    protocol, address, port = service.frontend
    return protocol.lower(), address, port


def _memory(service: VirtualService, server: RealServer) -> Memory:
    return Memory(f"ipvs {service.frontend} {socket(server.address, server.port)}", service.persistent)


def _weight(service: VirtualService, server: RealServer) -> int:
    """What it has of new connections: over many clients and destinations, as long as connections last equally long."""
    if server.weight == 0:
        return 0
    return 1 if server.weight is None or service.scheduler in _REGARDLESS else server.weight
