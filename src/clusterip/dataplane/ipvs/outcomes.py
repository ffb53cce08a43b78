"""Where virtual servers and chains send a packet: a walk through the hooks. Pure.

The exceptions to `services.route`, all of them kube-proxy's own in this mode:

- one virtual server serves all clients alike: a Local policy without a backend here gives way to the cluster's (B40),
  and pods and processes of the node get the backends that strangers get;
- a virtual server without backends refuses, where other modes may drop;
- a new connection to an address on the dummy device and a port of no Service is refused (B20);
- a process of the node is held to source ranges only where it speaks with the balancer's address as its own, and is
  masqueraded only where the packet's marks say so;
- source ranges are asked before anything else, so a stranger is dropped also where there is no backend.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import replace

from clusterip.dataplane.flow import Flow, NotModelled, begin, named, within
from clusterip.dataplane.ipvs import sets
from clusterip.dataplane.ipvs.book import Book
from clusterip.dataplane.ipvs.chains import complete
from clusterip.dataplane.ipvs.compile import At, Piece, VirtualServer
from clusterip.dataplane.ipvs.config import Config
from clusterip.dataplane.ipvs.sets import Member, SetKind
from clusterip.dataplane.node import Host
from clusterip.rulesets.iptables import Match, Ruleset, Target, match_text, parse, rule_text
from clusterip.rulesets.iptables import values as v
from clusterip.services.route import Delivered, Dropped, Outcome, Outcomes, Packet, Passed, Rejected, Source
from clusterip.services.table import PROTOCOL_NUMBERS


def outcomes(pieces: Iterable[Piece], config: Config, packet: Packet, host: Host) -> Outcomes:
    """Every outcome that the first packet of a connection may have."""
    return _Walk(Book.of(pieces), config, host).outcomes(packet)


class _Walk:
    def __init__(self, book: Book, config: Config, host: Host) -> None:
        self.rules: Ruleset = parse(complete(book.shape, config))
        self.servers = {server.at: server for server in book.servers}
        self.kinds = {sets.name(kind, config): kind for kind in sets.SETS}
        self.members = frozenset(book.members)
        self.local = host.addresses | frozenset(book.addresses)
        self.host = host

    def outcomes(self, packet: Packet) -> Outcomes:
        from_node = packet.source is Source.NODE
        _, flow = self._chain("nat", "OUTPUT" if from_node else "PREROUTING", begin(packet, self.host))
        if not self._is_local(packet.address):
            return frozenset({Passed()})
        server = self.servers.get(At(packet.protocol, packet.address, packet.port))
        # IPVS takes the node's own packets on their way out, so INPUT never sees those.
        if not (from_node and server):
            match self._chain("filter", "INPUT", flow)[0]:
                case v.Drop():
                    return frozenset({Dropped()})
                case v.Reject():
                    return frozenset({Rejected()})
        return self._scheduled(server, flow) if server else frozenset({Passed()})

    def _scheduled(self, server: VirtualServer, flow: Flow) -> Outcomes:
        found: set[Outcome] = set() if server.reals else {Rejected()}
        remembered = flow.packet.remembered
        kept = [r for r in server.reals if remembered and (r.address, r.port) == (remembered.address, remembered.port)]
        for real in (server.persistent and kept) or server.reals:
            sent = replace(flow, address=real.address, port=real.port, rewritten=True)
            if isinstance(self._chain("filter", "OUTPUT", sent)[0], v.Drop):
                found.add(Dropped())
            else:
                end, _ = self._chain("nat", "POSTROUTING", sent)
                stays = real.address in self.host.addresses and flow.interface != ""  # it meets no POSTROUTING
                found.add(Delivered(real.address, real.port, isinstance(end, v.Masquerade) and not stays))
        return frozenset(found)

    def _chain(self, table: str, chain: str, flow: Flow) -> tuple[Target, Flow]:
        """The target that ended the walk, None if it fell through, and the packet after it."""
        for rule in self.rules.rules(table, chain):
            if not all(self._meets(match, flow) for match in rule.matches):
                continue
            match rule.target:
                case v.Return():
                    return None, flow
                case v.SetMark(value, mask):
                    flow = replace(flow, mark=(flow.mark & ~mask) ^ value)
                case v.Jump(inner):
                    end, flow = self._chain(table, inner, flow)
                    if end is not None:
                        return end, flow
                case v.Accept() | v.Drop() | v.Reject() | v.Masquerade():
                    return rule.target, flow
                case _:
                    raise NotModelled(f"rule {rule_text(rule)!r}: its target is not one that the proxy writes")
        return None, flow

    def _meets(self, match: Match, flow: Flow) -> bool:
        packet = flow.packet
        match match:
            case v.Source(network, negated):
                return within(packet.source_address, network) != negated
            case v.InInterface(pattern, negated):
                return named(flow.interface, pattern, "+") != negated
            case v.IPProtocol(name, negated):
                return (packet.protocol.lower() == name) != negated
            case v.Comment():
                return True
            case v.ConnState(states, False):
                return "NEW" in states
            case v.Mark(value, mask, negated):
                return (flow.mark & mask == value) != negated
            case v.PhysDev(is_in=False):
                # A packet that a bridge passes to the node's own stack comes in by the bridge.
                return True
            case v.AddrType("LOCAL", "", negated):
                return self._is_local(packet.source_address) != negated
            case v.AddrType("", "LOCAL", False, False):
                return self._is_local(flow.address)
            case v.InSet(name, directions, negated):
                return self._in_set(self.kinds[name], directions, flow) != negated
            case v.OtherMatch("ipvs", words):
                return _is_virtual(words, flow)
            case _:
                raise NotModelled(f"match {match_text(match)!r}: not one that the proxy writes")

    def _in_set(self, kind: SetKind, directions: Sequence[str], flow: Flow) -> bool:
        source = flow.packet.source_address
        if kind.is_bitmap:
            return Member(kind, str(flow.port)) in self.members
        first = source if directions[0] == "src" else flow.address
        where = f"{first},{flow.packet.protocol.lower()}:{flow.port}"
        match kind.type:
            case "hash:ip":
                return Member(kind, first) in self.members
            case "hash:ip,port":
                return Member(kind, where) in self.members
            case "hash:ip,port,ip":
                return Member(kind, f"{where},{source}") in self.members
            case _:
                networks = (m.text.split(",") for m in self.members if m.kind == kind)
                return any(f"{a},{p}" == where and within(source, network) for a, p, network in networks)

    def _is_local(self, address: str) -> bool:
        return address in self.local or ipaddress.ip_address(address).is_loopback


def _is_virtual(words: Sequence[str], flow: Flow) -> bool:
    asked = dict(zip(words[::2], words[1::2], strict=True))
    packet = flow.packet
    here = (str(PROTOCOL_NUMBERS[packet.protocol]), packet.address, str(packet.port))
    return flow.rewritten and here == (asked["--vproto"], asked["--vaddr"], asked["--vport"])
