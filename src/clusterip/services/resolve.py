"""A Service and its slices -> what this node does for each of its ports. Pure.

The one place that decides which backends count: readiness, terminating fallback, traffic policies, topology hints.
Source: kube-proxy 1.36 as observed; KEP-2433, KEP-3015 (hints), KEP-1669 (terminating endpoints), KEP-2086 and
KEP-1860 (internal policy, ipMode).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from clusterip.model.objects import Endpoint, EndpointSlice, Service, ServicePort
from clusterip.services.addresses import canonical_address, canonical_range
from clusterip.services.table import Backend, Entry, Family, PortName, Protocol

PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"  # on a Service: another proxy serves it
HEADLESS_LABEL = "service.kubernetes.io/headless"  # on an EndpointSlice: it is there for DNS only
SERVICE_NAME_LABEL = "kubernetes.io/service-name"  # on an EndpointSlice: the Service it belongs to
ZONE_LABEL = "topology.kubernetes.io/zone"  # on a Node

PROTOCOLS = frozenset({"TCP", "UDP", "SCTP"})


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What decides, besides the objects, which backends count here."""

    name: str
    zone: str = ""  # the node's topology.kubernetes.io/zone; "": none


class _Candidate(NamedTuple):
    backend: Backend
    ready: bool
    serving: bool
    terminating: bool
    for_zones: frozenset[str]
    for_nodes: frozenset[str]

    @property
    def last_resort(self) -> bool:
        return self.serving and self.terminating


def resolve(service: Service, slices: Sequence[EndpointSlice], node: NodeContext, family: Family) -> tuple[Entry, ...]:
    """The entries of `service` in `family`, one a port in the Service's order; () if it is not ours to serve.

    Values that cannot be used (addresses, ranges, ports, protocols) are passed over, never an error.
    """
    if not is_served(service):
        return ()
    cluster_ip = _cluster_ip(service, family)
    if not cluster_ip:
        return ()
    usable = _usable_slices(service, slices, family)
    entries: dict[object, Entry] = {}
    for port in service.spec.ports or ():
        if port.protocol not in PROTOCOLS or not 1 <= port.port <= 65535:
            continue
        draft = _frontends(service, port, cluster_ip, family)
        entries.setdefault(draft.key, _with_backends(draft, _candidates(draft, usable, node), node))
    return tuple(entries.values())


def is_served(service: Service) -> bool:
    """False for headless and ExternalName Services and for those that name another proxy."""
    return (
        service.spec.type != "ExternalName"
        and service.spec.cluster_ip not in ("", "None")
        and PROXY_NAME_LABEL not in service.metadata.labels
    )


def _cluster_ip(service: Service, family: Family) -> str:
    for text in service.spec.cluster_ips or (service.spec.cluster_ip,):
        if address := canonical_address(text, family):
            return address
    return ""


def _frontends(service: Service, port: ServicePort, cluster_ip: str, family: Family) -> Entry:
    """All of an entry but its backends."""
    spec = service.spec
    balancers = _addresses(
        (i.ip for i in service.status.load_balancer.ingress or () if i.ip_mode in (None, "VIP")), family
    )
    external_ips = _addresses(spec.external_ips, family)
    accessible = spec.type in ("NodePort", "LoadBalancer") or bool(spec.external_ips)
    external_local = accessible and spec.external_traffic_policy == "Local"
    checked = external_local and spec.type == "LoadBalancer"
    return Entry(
        name=PortName(service.metadata.namespace, service.metadata.name, port.name),
        family=family,
        protocol=cast(Protocol, port.protocol),
        port=port.port,
        cluster_ip=cluster_ip,
        node_port=port.node_port if 1 <= port.node_port <= 65535 else 0,
        external_ips=external_ips,
        load_balancer_ips=balancers,
        source_ranges=_ranges(spec.load_balancer_source_ranges, family),
        internal_local=spec.internal_traffic_policy == "Local",
        external_local=external_local,
        affinity_seconds=_affinity_seconds(service),
        health_check_node_port=spec.health_check_node_port if checked else 0,
    )


def _addresses(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    found = (canonical_address(text, family) for text in texts)
    return tuple(dict.fromkeys(address for address in found if address))


def _ranges(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """A range that holds every address makes the others pointless: then nobody is kept out."""
    found = tuple(dict.fromkeys(r for r in (canonical_range(text, family) for text in texts) if r))
    return () if any(r.endswith("/0") for r in found) else found


def _affinity_seconds(service: Service) -> int:
    if service.spec.session_affinity != "ClientIP":
        return 0
    config = service.spec.session_affinity_config
    return config.client_ip.timeout_seconds if config and config.client_ip else 10800


def _usable_slices(service: Service, slices: Iterable[EndpointSlice], family: Family) -> list[EndpointSlice]:
    own = service.metadata
    usable = (
        s
        for s in slices
        if s.address_type == family
        and s.metadata.namespace == own.namespace
        and s.metadata.labels.get(SERVICE_NAME_LABEL) == own.name
        and HEADLESS_LABEL not in s.metadata.labels
    )
    return sorted(usable, key=lambda s: s.metadata.name)


def _candidates(entry: Entry, slices: Iterable[EndpointSlice], node: NodeContext) -> list[_Candidate]:
    """The endpoints of one port, each address and port once, sorted by text.

    Of two copies the one that is not terminating counts: a pod's address may be given to a new pod while the old
    one is still going.
    """
    found: dict[str, _Candidate] = {}
    for s in slices:
        for port in s.ports or ():
            if port.name != entry.name.port or (port.protocol or "TCP") != entry.protocol:
                continue
            if port.port is None or not 1 <= port.port <= 65535:
                continue
            for endpoint in s.endpoints or ():
                candidate = _candidate(endpoint, port.port, node, entry.family)
                if candidate and (str(candidate.backend) not in found or not candidate.terminating):
                    found[str(candidate.backend)] = candidate
    return [found[text] for text in sorted(found)]


def _candidate(endpoint: Endpoint, port: int, node: NodeContext, family: Family) -> _Candidate | None:
    address = canonical_address(endpoint.addresses[0], family) if endpoint.addresses else ""
    if not address:
        return None
    conditions, hints = endpoint.conditions, endpoint.hints
    return _Candidate(
        Backend(address, port, endpoint.node_name == node.name),
        ready=conditions.ready is not False,
        serving=conditions.serving is not False,
        terminating=conditions.terminating is True,
        for_zones=frozenset(t.name for t in (hints.for_zones if hints else None) or ()),
        for_nodes=frozenset(t.name for t in (hints.for_nodes if hints else None) or ()),
    )


def _with_backends(draft: Entry, candidates: Sequence[_Candidate], node: NodeContext) -> Entry:
    ready = [c for c in candidates if c.ready]
    last_resort = [c for c in candidates if c.last_resort]
    cluster = (_near(ready, node) or last_resort) if draft.uses_cluster else []
    local: list[_Candidate] = []
    if draft.uses_local:
        local = [c for c in ready if c.backend.local] or [c for c in last_resort if c.backend.local]
    here = dict.fromkeys(c.backend.address for c in ready if c.backend.local)
    return replace(
        draft,
        cluster=tuple(c.backend for c in cluster),
        local=tuple(c.backend for c in local),
        has_backends=bool(ready or last_resort),
        local_ready=tuple(here) if draft.health_check_node_port else (),
        serving=tuple(c.backend for c in candidates if c.serving) if draft.protocol == "UDP" else (),
        known=len(candidates),
    )


def _near(ready: Sequence[_Candidate], node: NodeContext) -> Sequence[_Candidate]:
    """Of the ready ones those hinted for this node, else for its zone. Hints count only where all have them."""
    if all(c.for_nodes for c in ready) and any(node.name in c.for_nodes for c in ready):
        return [c for c in ready if node.name in c.for_nodes]
    if node.zone and all(c.for_zones for c in ready) and any(node.zone in c.for_zones for c in ready):
        return [c for c in ready if node.zone in c.for_zones]
    return ready
