"""Sets of packets through the chains of one hook."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.chain import Cell, Ended, Sets, through
from clusterip.diagnosis.verify.flow import Flow, Socket
from clusterip.diagnosis.verify.sources import Clients
from clusterip.diagnosis.walk.branch import Condition, End
from clusterip.diagnosis.walk.hooks import BaseChain, HookName
from clusterip.rulesets.iptables import values as v

_DESTINATION_HOOKS = frozenset({"prerouting", "output"})


class Passage:
    """Through chains of one hook. `sets`: by program and table."""

    def __init__(self, sets: Mapping[tuple[str, str], Sets]) -> None:
        self._sets = sets

    def ends(self, hook: HookName, chains: Iterable[BaseChain], cell: Cell, start: Flow) -> list[Ended]:
        """Every way out: accepted, or ended."""
        pending, ended = [start], list[Ended]()
        for group in _at_once(chains):
            following: list[Flow] = []
            for flow in pending:
                for end, after in self._group(hook, group, cell, flow):
                    if end is End.ACCEPT:
                        following.append(after)
                    else:
                        ended.append((end, after))
            pending = following
        return ended + [(End.ACCEPT, f) for f in pending]

    def _group(self, hook: HookName, chains: Sequence[BaseChain], cell: Cell, flow: Flow) -> list[Ended]:
        """Chains of one priority run in the order in which they were registered, which no listing tells."""
        forth = self._in_order(hook, chains, cell, flow)
        if len(chains) < 2:
            return forth
        back = self._in_order(hook, chains[::-1], cell, flow)
        if set(map(_told, forth)) == set(map(_told, back)):
            return forth
        names = " and ".join(f"{c.rules.table} {c.chain}" for c in chains)
        order = Condition(f"order {hook} {names}", "order", "", "", f"the order of {names} at hook {hook}")
        return [
            (end, replace(f, doubts=(*f.doubts, (order, holds))))
            for found, holds in ((forth, True), (back, False))
            for end, f in found
        ]

    def _in_order(self, hook: HookName, chains: Sequence[BaseChain], cell: Cell, start: Flow) -> list[Ended]:
        pending, ended = [start], list[Ended]()
        for chain in chains:
            rules = self._sets[chain.rules.program, chain.rules.table]
            following: list[Flow] = []
            for flow in pending:
                if chain.kind == "nat" and _is_settled(hook, flow):
                    following.append(flow)
                    continue
                here = self._moved(cell, flow)
                for end, after in through(rules, chain.chain, here, flow):
                    if end is End.FELL_THROUGH:
                        end = End.DROP if chain.policy == "drop" else End.ACCEPT
                    if end is End.ACCEPT:
                        following.append(after)
                    else:
                        ended.append((end, after))
            pending = following
        return ended + [(End.ACCEPT, f) for f in pending]

    def _moved(self, cell: Cell, flow: Flow) -> Cell:
        """The cell as later chains of the hook see it."""
        if flow.target is None or cell.packet.destination_rewritten:
            return cell
        return cell_of(rewritten(cell.packet, flow.target), cell.clients)


def cell_of(packet: Packet, clients: Clients) -> Cell:
    certain: set[v.Match] = {v.IPProtocol(packet.protocol)}
    match packet.protocol:
        case "tcp" | "udp" | "sctp" as protocol:
            certain.add(v.Ports(protocol))
    return Cell(packet, clients, {}, frozenset(certain), set())


def rewritten(packet: Packet, to: Socket) -> Packet:
    return replace(packet, destination=to.address, destination_port=to.port, destination_rewritten=True)


def _at_once(chains: Iterable[BaseChain]) -> list[list[BaseChain]]:
    return [list(group) for _, group in groupby(chains, key=lambda c: c.priority)]


def _is_settled(hook: HookName, flow: Flow) -> bool:
    if not flow.tracked:
        return True
    return flow.target is not None if hook in _DESTINATION_HOOKS else flow.masqueraded


def _told(ended: Ended) -> tuple[object, ...]:
    end, flow = ended
    return end, flow.sources, flow.weight.value, flow.mark, flow.target, flow.masqueraded, flow.doubts
