"""IPVS mode: the way of packets for a virtual server, and what the service table makes of them in this mode.

A packet of others comes in, is for this node, as its address is on a device of the node's, and IPVS takes it in INPUT;
one of the node's own is taken in OUTPUT. What IPVS sends on passes OUTPUT and POSTROUTING as if the node had sent it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_

from msgspec.structs import replace

from clusterip.diagnosis.verify.chain import Cell, Ended
from clusterip.diagnosis.verify.flow import Flow
from clusterip.diagnosis.verify.passage import Passage, cell_of, rewritten
from clusterip.diagnosis.verify.sources import Clients, one_of_the_node
from clusterip.diagnosis.walk.branch import End
from clusterip.diagnosis.walk.hooks import BaseChain, HookName
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.services.route import Delivered, Dropped, Outcomes, Policy, Rejected, Source, route
from clusterip.services.route import Packet as Asked
from clusterip.services.table import Backend, Entry, Frontend, FrontendKind

_PROBE = (Backend("192.0.2.99", 1),)


def speaking(clients: Clients, address: str) -> Clients:
    """A process of the node that names no source speaks to a virtual address with that address as its own."""
    return with_(clients, node=one_of_the_node(address))


class VirtualWays:
    """Through the hooks, for packets that a virtual server takes."""

    def __init__(
        self, passage: Passage, chains: Mapping[HookName, Sequence[BaseChain]], surroundings: Surroundings
    ) -> None:
        self._passage = passage
        self._chains = chains
        self._surroundings = surroundings

    def ends(self, cell: Cell, hook: HookName, start: Flow) -> list[Ended]:
        """Every way out. What is accepted has arrived, or has left, at its target."""
        if hook == "output":
            return self._taken(hook, cell, start)
        ended: list[Ended] = []
        for end, flow in self._passage.ends(hook, self._chains[hook], cell, start):
            ended += self._input(cell, flow) if end is End.ACCEPT else [(end, flow)]
        return ended

    def _input(self, cell: Cell, flow: Flow) -> list[Ended]:
        return self._taken("input", cell_of(replace(cell.packet, out_interface=""), cell.clients), flow)

    def _taken(self, hook: HookName, cell: Cell, start: Flow) -> list[Ended]:
        ended: list[Ended] = []
        for end, flow in self._passage.ends(hook, self._chains[hook], cell, start):
            ended += self._sent(cell, flow) if end is End.TAKEN else [(end, flow)]
        return ended

    def _sent(self, cell: Cell, flow: Flow) -> list[Ended]:
        """On to another machine, or pod."""
        assert flow.target is not None, "IPVS has given it one"
        way_out = self._surroundings.interface(flow.target.address)
        sent = replace(rewritten(cell.packet, flow.target), in_interface="", out_interface=way_out)
        at = cell_of(sent, cell.clients)._replace(virtual=cell.packet)
        output = [c for c in self._chains["output"] if c.kind == "filter"]
        ended: list[Ended] = []
        for end, after in self._passage.ends("output", output, at, flow):
            if end is End.ACCEPT:
                ended += self._passage.ends("postrouting", self._chains["postrouting"], at, after)
            else:
                ended.append((end, after))
        return ended


# --- what should be ---------------------------------------------------------------------------------------------------


def routed(entry: Entry, frontend: Frontend, packet: Asked, policy: Policy) -> Outcomes:
    """As `services.route`, but for what one virtual server for all clients cannot do: a Local policy without a backend
    here gives way to the cluster's, the node's own packets included; and source ranges come before everything else."""
    local = entry.external_local if frontend.kind.external else entry.internal_local
    backends = (entry.local or entry.cluster) if local else entry.cluster
    from_node = packet.source is Source.NODE
    asked = not from_node or (packet.source_address == packet.address and bool(backends))
    if asked and frontend.kind is FrontendKind.LOAD_BALANCER and not _admitted(entry, packet, policy):
        return frozenset({Dropped()})
    if not backends:
        return frozenset({Rejected()})
    masquerade = not entry.external_local
    if frontend.kind is FrontendKind.CLUSTER_IP:
        to_itself = not policy.detects_pods and packet.source_address == packet.address
        own = packet.source is Source.POD
        masquerade = policy.masquerade_all or (policy.detects_pods and not own) or to_itself
    return frozenset(Delivered(b.address, b.port, masquerade or b.address == packet.source_address) for b in backends)


def _admitted(entry: Entry, packet: Asked, policy: Policy) -> bool:
    """Source ranges, as the specification has them: seen where there is a backend."""
    probe = with_(entry, cluster=_PROBE, local=_PROBE, has_backends=True)
    return route([probe], packet, policy) != {Dropped()}
