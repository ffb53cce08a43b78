"""One entry of the service table -> what it puts into the kernel. Pure; equal entries give equal pieces."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables.config import Config
from clusterip.rulesets.nft import values as v
from clusterip.services.table import Backend, Entry, EntryKey, Frontend, FrontendKind, Protocol

Claim: TypeAlias = tuple[str, Protocol, int]  # address ("": node port), protocol, port
Key: TypeAlias = tuple[str | int, ...]  # of an element, a part each; protocols as in `Protocol`

MAX_COMMENT = 127  # bytes that nft prints


class Front(NamedTuple):
    """What is done for one address, port and protocol. `target`: a chain, or "" to drop."""

    claim: Claim
    target: str
    endpoints: tuple[Backend, ...]  # that a chain `pick-...` draws from
    local_endpoints: tuple[Backend, ...]
    comment: str

    @property
    def refused(self) -> bool:
        return self.target == c.REFUSE


class Element(NamedTuple):
    """One element of a set or map."""

    set: str
    key: Key
    value: Backend | v.Verdict | None = None  # None: of a set
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """All that one entry puts into the kernel. Chains, sets and members may be others' as well."""

    key: EntryKey
    fronts: tuple[Front, ...]
    chains: tuple[v.Chain, ...] = ()
    sets: tuple[v.Set, ...] = ()
    members: tuple[Element, ...] = ()  # of cluster-ips and hairpins


class _Writer:
    """Gathers what the frontends of one entry lead to."""

    def __init__(self, entry: Entry, config: Config) -> None:
        self.entry = entry
        self.config = config
        self.chains: dict[str, v.Chain] = {}
        self.sets: dict[str, v.Set] = {}

    def front(self, frontend: Frontend) -> Front:
        entry = self.entry
        claim = (frontend.address, frontend.protocol, frontend.port)
        comment = str(entry.name)[:MAX_COMMENT]
        if not entry.has_backends:
            return Front(claim, c.REFUSE, (), (), comment)
        if not frontend.kind.external:
            backends = entry.local if entry.internal_local else entry.cluster
            suffix = "/local" if entry.internal_local else ""
            return Front(claim, self._spread(backends, suffix), self._drawn(backends), (), comment)
        node_port = frontend.kind is FrontendKind.NODE_PORT
        target = self._external(node_port)
        if frontend.kind is FrontendKind.LOAD_BALANCER and entry.source_ranges:
            target = self._admission(target)
        local = self._drawn(entry.local) if entry.external_local else ()
        return Front(claim, target, self._drawn(entry.cluster), local, comment)

    def _drawn(self, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
        """Sticky Services have chains of their own, and need no elements."""
        return () if self.entry.affinity_seconds else backends

    def _add(self, chain: v.Chain) -> str:
        self.chains.setdefault(chain.name, chain)
        return chain.name

    def _spread(
        self, backends: tuple[Backend, ...], suffix: str = "", *, node_port: bool = False, local: bool = False
    ) -> str:
        """The chain that leads to one of `backends`; "" if there is none."""
        if not backends:
            return ""
        if not self.entry.affinity_seconds:
            return self._add(c.pick(self.config, len(backends), node_port=node_port, local=local))
        for backend in backends:
            clients = c.clients(self.config, self.entry, backend)
            self.sets.setdefault(clients.name, clients)
            self._add(c.sticky_endpoint(self.config, self.entry, backend))
        name = f"sticky-{c.identity(self.entry)}{suffix}"
        return self._add(c.sticky(self.config, self.entry, backends, name))

    def _external(self, node_port: bool) -> str:
        entry = self.entry
        to = self._spread(entry.cluster, node_port=node_port)
        where = "node-external" if node_port else "external"
        if not entry.external_local:
            name = f"external-{c.identity(entry)}" if entry.affinity_seconds else f"{where}-{len(entry.cluster)}"
            return self._add(c.external(self.config, name, to))
        to_local = self._spread(entry.local, "/local", node_port=node_port, local=True)
        shape = f"{where}-{len(entry.cluster)}-local-{len(entry.local)}"
        name = f"external-{c.identity(entry)}/local" if entry.affinity_seconds else shape
        return self._add(c.external_local(self.config, name, to, to_local))

    def _admission(self, to: str) -> str:
        entry, config = self.entry, self.config
        sources = list(entry.source_ranges)
        node_ip = ipaddress.ip_address(config.node_ip) if config.node_ip else None
        if node_ip and any(node_ip in ipaddress.ip_network(r) for r in sources):
            # Where the load balancer's address is also the node's own, the node's packets carry it as their source.
            sources += entry.load_balancer_ips
        return self._add(c.admission(config, f"admission-{c.identity(entry)}", sources, to))


def compile_entry(entry: Entry, config: Config) -> Piece:
    """`entry.family` must be `config.family`."""
    writer = _Writer(entry, config)
    fronts: dict[Claim, Front] = {}
    for frontend in entry.frontends():
        claim = (frontend.address, frontend.protocol, frontend.port)
        if claim not in fronts:
            fronts[claim] = writer.front(frontend)
    local = {b.address: None for b in (*entry.cluster, *entry.local) if b.local}
    service = f"{entry.name.namespace}/{entry.name.service}"[:MAX_COMMENT]
    members = (
        Element(c.CLUSTER_IPS, (entry.cluster_ip,), comment=service),
        *(Element(c.HAIRPINS, (a, a)) for a in local),  # whichever Services it serves
    )
    return Piece(entry.key, tuple(fronts.values()), tuple(writer.chains.values()), tuple(writer.sets.values()), members)


def elements(front: Front) -> Iterator[Element]:
    """The verdict first."""
    address, protocol, port = front.claim
    key: Key = (address, protocol, port) if address else (protocol, port)
    names = _BY_ADDRESS if address else _BY_NODE_PORT
    yield Element(names.refusals if front.refused else names.verdicts, key, c.goto(front.target), front.comment)
    for number, backend in enumerate(front.endpoints):
        yield Element(names.endpoints, (*key, number), backend, front.comment)
    for number, backend in enumerate(front.local_endpoints):
        yield Element(names.local_endpoints, (*key, number), backend, front.comment)


def counts(front: Front) -> Iterator[tuple[str, int]]:
    """How many elements it has in which map."""
    names = _BY_ADDRESS if front.claim[0] else _BY_NODE_PORT
    yield (names.refusals if front.refused else names.verdicts), 1
    yield names.endpoints, len(front.endpoints)
    yield names.local_endpoints, len(front.local_endpoints)


class _Maps(NamedTuple):
    verdicts: str
    refusals: str
    endpoints: str
    local_endpoints: str


_BY_ADDRESS = _Maps(c.SERVICE_IPS, c.NO_ENDPOINTS, c.ENDPOINTS, c.LOCAL_ENDPOINTS)
_BY_NODE_PORT = _Maps(c.NODE_PORTS, c.NO_ENDPOINT_NODE_PORTS, c.NODE_PORT_ENDPOINTS, c.NODE_PORT_LOCAL_ENDPOINTS)
# What decides on a packet; all of it changes at once.
SWITCHED = frozenset({c.SERVICE_IPS, c.NODE_PORTS, c.NO_ENDPOINTS, c.NO_ENDPOINT_NODE_PORTS, c.CLUSTER_IPS})
