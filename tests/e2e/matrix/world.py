"""What a real cluster should answer: the API's objects, the specification, a packet's way from node to node. Pure."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, cast

from tests.dataplane import meaning
from tests.dataplane.meaning import Where

from clusterip.dataplane.node import Host
from clusterip.lab.check.plan import World
from clusterip.services.resolve import NodeContext, resolve
from clusterip.services.route import Delivered, Dropped, Outcome, Outcomes, Packet, Passed, Policy, Rejected, Source
from clusterip.services.table import Entry, EntryKey, Family, Protocol

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
LOOPBACK: Mapping[Family, str] = {"IPv4": "127.0.0.1", "IPv6": "::1"}
MEANING: Mapping[str, Callable[[Sequence[Entry], Packet, Where], Outcomes]] = {
    "iptables": meaning.iptables,
    "nftables": meaning.nftables,
    "ebpf": meaning.ebpf,
    "ipvs": meaning.ipvs,
}
OWN = "own address"  # of the client's node


def family_of(address: str) -> Family:
    return "IPv6" if ":" in address else "IPv4"


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    zone: str
    ips: Mapping[Family, str]
    gateways: Mapping[Family, str]  # its pods'

    def addresses(self, family: Family) -> frozenset[str]:
        return frozenset({self.ips[family], self.gateways[family]})


@dataclass(frozen=True, slots=True)
class Client:
    name: str  # and how `clusterip exec` knows it
    source: Source
    node: str  # whose rules its packets meet first; "": see `entrances`
    ips: Mapping[Family, str]


@dataclass(frozen=True, slots=True, order=True)
class Frontend:
    """A row of the matrix."""

    label: str  # "s07:p0 nodePort of node-2"
    address: str  # or OWN, for each client that of its own node
    port: int
    protocol: Protocol
    family: Family


@dataclass(frozen=True, slots=True, order=True)
class Answer:
    """`who`: "red-1:8080", or "refused", "silent", "unreachable". `saw`: whose address the backend saw."""

    who: str
    saw: str = ""

    def __str__(self) -> str:
        return f"{self.who} from {self.saw}" if self.saw else self.who


REFUSED, SILENT = Answer("refused"), Answer("silent")
# A router tells a client now and then that it knows no way; a datagram's sender does not get to hear it.
NOWHERE = frozenset({SILENT, Answer("unreachable")})


@dataclass(frozen=True, slots=True)
class Decider:
    """Whose rules chose the backend: all that ask there draw from the same pool."""

    node: str
    entry: EntryKey
    sockets: bool  # eBPF mode has two layers, each with its own memory of clients
    server: str = ""  # the address asked: in IPVS mode each has its own memory


@dataclass(frozen=True, slots=True)
class Cell:
    client: Client
    frontend: Frontend
    source: str  # address of the client, as its first node sees it
    address: str
    expected: frozenset[Answer]
    decider: Decider | None  # None: no backend is chosen
    sticky: bool  # the client keeps its backend

    @property
    def backends(self) -> tuple[str, ...]:
        return tuple(sorted(a.who for a in self.expected)) if self.decider else ()


Networks: TypeAlias = Sequence[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, str]]


@dataclass(frozen=True)  # no slots: the tables are made once, when first asked
class Setting:
    mode: str
    world: World
    nodes: tuple[Node, ...]
    clients: tuple[Client, ...]
    entrances: Networks  # to which node an outside client sends what
    service_cidrs: tuple[str, ...]
    backends: Mapping[tuple[str, int], str]  # "red-1:8080" by address and port

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def entries(self) -> Mapping[tuple[str, Family], tuple[Entry, ...]]:
        return {
            (node.name, family): tuple(
                entry
                for service in self.world.services
                for entry in resolve(service, self.world.slices_of(service), NodeContext(node.name, node.zone), family)
            )
            for node in self.nodes
            for family in node.ips
        }

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Who has an address."""
        found = {a: node.name for node in self.nodes for family in node.ips for a in node.addresses(family)}
        return {a: c.name for c in self.clients if c.source is not Source.NODE for a in c.ips.values()} | found

    def frontends(self, namespace: str) -> Iterator[Frontend]:
        """Those of the Services of a namespace, with one wrong port each."""
        first = self.nodes[0]
        for family in first.ips:
            for entry in self.entries[first.name, family]:
                if entry.name.namespace == namespace:
                    yield from self._of(entry)

    def _of(self, entry: Entry) -> Iterator[Frontend]:
        name, family = f"{entry.name.service}:{entry.name.port}", entry.family
        for frontend in entry.frontends():
            words = f"{name} {frontend.kind.value}"
            if frontend.address:
                yield Frontend(words, frontend.address, frontend.port, frontend.protocol, family)
                continue
            for node in self.nodes:
                to = f"{words} of {node.name}"
                yield Frontend(to, node.ips[family], frontend.port, frontend.protocol, family)
                to = f"{words} of {node.name}, pods' side"
                yield Frontend(to, node.gateways[family], frontend.port, frontend.protocol, family)
            yield Frontend(f"{words} of {OWN}", OWN, frontend.port, frontend.protocol, family)
        # Below the ports that clients send from: in IPVS mode the address is the node's, and a socket could ask itself.
        wrong = 3000 + entry.port % 1000
        yield Frontend(f"{name} wrong port", entry.cluster_ip, wrong, entry.protocol, family)

    def cells(self, frontends: Sequence[Frontend]) -> Iterator[Cell]:
        for frontend in frontends:
            for client in self.clients:
                if frontend.family not in client.ips:
                    continue
                if frontend.address != OWN:
                    yield self.cell(client, frontend, frontend.address)
                elif client.source is Source.NODE:
                    yield self.cell(client, frontend, LOOPBACK[frontend.family])

    def cell(self, client: Client, frontend: Frontend, address: str) -> Cell:
        packet = Packet(client.source, "", address, frontend.port, frontend.protocol)
        packet = replace(packet, source_address=self._source(client, packet, frontend.family))
        node = self.by_name[client.node or self._entrance(address)]
        outcomes = self._outcomes(node, packet, frontend.family)
        if outcomes == {Passed()}:
            there = self._node_with(address)
            if there is not None and there is not node:
                node, packet = there, replace(packet, source=Source.OUTSIDE)
                outcomes = self._outcomes(node, packet, frontend.family)
        return self._cell(client, frontend, packet, node, outcomes)

    def _cell(self, client: Client, frontend: Frontend, packet: Packet, node: Node, outcomes: Outcomes) -> Cell:
        expected = frozenset().union(*(self._answers(o, client, packet, node) for o in outcomes))
        if not {a.who for a in expected} <= set(self.backends.values()):
            return Cell(client, frontend, packet.source_address, packet.address, expected, None, False)
        (entry,) = (e for e in self.entries[node.name, frontend.family] if _claims(e, packet))
        at_sockets = self.mode == "ebpf" and meaning.sockets(
            self.entries[node.name, frontend.family], packet, self._where(node, frontend.family)
        ) != {Passed()}
        decider = Decider(node.name, entry.key, at_sockets, packet.address if self.mode == "ipvs" else "")
        sticky = bool(entry.affinity_seconds)
        return Cell(client, frontend, packet.source_address, packet.address, expected, decider, sticky)

    def _answers(self, outcome: Outcome, client: Client, packet: Packet, node: Node) -> frozenset[Answer]:
        match outcome:
            case Delivered(address, port) if (address, port) not in self.backends:
                return NOWHERE  # a pod that is gone, and nobody looks after the slice
            case Delivered(address, port, masqueraded):
                if not masqueraded and not self._comes_back(client, packet, node, address):
                    return _astray(packet, address, port)
                saw = node.name if masqueraded else self._saw(client, packet)
                return frozenset({Answer(self.backends[address, port], saw)})
            case Rejected():
                return frozenset({REFUSED})
            case Dropped():
                return frozenset({SILENT})
            case _ if self._node_with(packet.address) or meaning.is_loopback(packet.address):
                return frozenset({REFUSED})  # nobody listens
            case _:
                return NOWHERE

    def _comes_back(self, client: Client, packet: Packet, node: Node, backend: str) -> bool:
        """Whether the answer of a backend that saw the client's own address passes the node that translated. IPVS mode
        sends on without masquerading under a Local policy, to other nodes too if this one has no backend."""
        entries = self.entries[node.name, family_of(backend)]
        here = any(b.local for e in entries for b in (*e.cluster, *e.local) if b.address == backend)
        return here or (client.node == node.name and not self._speaks_as_service(client, packet))

    def _speaks_as_service(self, client: Client, packet: Packet) -> bool:
        """With the very address it asks, which every node has on the device of IPVS mode."""
        if client.source is not Source.NODE or packet.source_address != packet.address:
            return False
        own = self.by_name[client.node].addresses(family_of(packet.address))
        return packet.address not in own and not meaning.is_loopback(packet.address)

    def _saw(self, client: Client, packet: Packet) -> str:
        if self._speaks_as_service(client, packet):
            return packet.address
        return client.node if client.source is Source.NODE else client.name

    def _source(self, client: Client, packet: Packet, family: Family) -> str:
        """As the client's kernel chooses it."""
        if client.source is not Source.NODE:
            return client.ips[family]
        node = self.by_name[client.node]
        own = packet.address in node.addresses(family) or meaning.is_loopback(packet.address)
        bound = self.mode == "ipvs" and packet.address in self._bound(node, family)
        return packet.address if own or bound else client.ips[family]

    def _bound(self, node: Node, family: Family) -> frozenset[str]:
        """To the device of IPVS mode."""
        return frozenset(
            a for e in self.entries[node.name, family] for a in (e.cluster_ip, *e.external_ips, *e.load_balancer_ips)
        )

    def _entrance(self, address: str) -> str:
        given = ipaddress.ip_address(address)
        at = self._node_with(address)
        return at.name if at else next(node for network, node in self.entrances if given in network)

    def _node_with(self, address: str) -> Node | None:
        return next((node for node in self.nodes for f in node.ips if address in node.addresses(f)), None)

    def _outcomes(self, node: Node, packet: Packet, family: Family) -> Outcomes:
        return MEANING[self.mode](self.entries[node.name, family], packet, self._where(node, family))

    def _where(self, node: Node, family: Family) -> Where:
        """Source of which addresses serve node ports where nothing is configured: kube-proxy, by mode."""
        own = node.addresses(family)
        served = own if self.mode in ("iptables", "ipvs") else frozenset({node.ips[family]})
        loopback = {LOOPBACK[family]} if family == "IPv4" or self.mode == "ebpf" else set()
        policy = Policy(served | loopback, node.ips[family], detects_pods=True)
        return Where(policy, Host(own), self.service_cidrs)


def _astray(packet: Packet, address: str, port: int) -> frozenset[Answer]:
    """The answer comes from the backend's own address: TCP does not take it; a datagram's sender sees whose it is."""
    return frozenset({SILENT} if packet.protocol == "TCP" else {SILENT, Answer(f"answered by {address}:{port}")})


def _claims(entry: Entry, packet: Packet) -> bool:
    named = {f.address for f in entry.frontends() if (f.port, f.protocol) == (packet.port, packet.protocol)}
    return packet.address in named or ("" in named and packet.address not in named)


def nodes(world: World) -> tuple[Node, ...]:
    found = []
    for node in world.nodes:
        ips = {family_of(a.address): a.address for a in node.status.addresses if a.type == "InternalIP"}
        gateways = {family_of(r): str(ipaddress.ip_network(r)[1]) for r in node.spec.pod_cidrs}
        zone = world.zones[node.metadata.name]
        found.append(Node(node.metadata.name, zone, ips, gateways))
    return tuple(sorted(found, key=lambda n: n.name))


def pod_ips(world: World) -> Mapping[str, Mapping[Family, str]]:
    """Of the pods that have any, by name; a node's for a pod on it."""
    return {
        pod.metadata.name: cast(Mapping[Family, str], {family_of(i.ip): i.ip for i in pod.status.pod_ips} or {})
        for pod in world.pods
        if pod.status.pod_ip
    }
