"""What to try, and what the API lets one expect of it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from clusterip.lab.check.values import Client, ClientKind, Expect, Expectation, Target
from clusterip.model.objects import Endpoint, EndpointSlice, Namespace, Node, Pod, Service, ServicePort
from clusterip.services.resolve import SERVICE_NAME_LABEL, ZONE_LABEL, NodeContext, is_served, resolve
from clusterip.services.route import Dropped, Packet, Policy, Rejected, Source, route
from clusterip.services.table import Family, Protocol


@dataclass(frozen=True)  # no slots: the indexes are made once, when first asked
class World:
    """What the API said, all of it at about one moment."""

    services: tuple[Service, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    namespaces: tuple[Namespace, ...] = ()

    def slices_of(self, service: Service) -> tuple[EndpointSlice, ...]:
        return tuple(self._slices.get((service.metadata.namespace, service.metadata.name), ()))

    def service(self, target: Target) -> Service:
        """Raises KeyError if the world does not know it; every target comes from a world."""
        return self._services[target.namespace, target.service]

    @cached_property
    def zones(self) -> Mapping[str, str]:
        """Of each node by name; "" if it has none."""
        return {node.metadata.name: node.metadata.labels.get(ZONE_LABEL, "") for node in self.nodes}

    @cached_property
    def _services(self) -> Mapping[tuple[str, str], Service]:
        return {(s.metadata.namespace, s.metadata.name): s for s in self.services}

    @cached_property
    def _slices(self) -> Mapping[tuple[str, str], Sequence[EndpointSlice]]:
        found: dict[tuple[str, str], list[EndpointSlice]] = {}
        for piece in self.slices:
            owner = piece.metadata.labels.get(SERVICE_NAME_LABEL, "")
            found.setdefault((piece.metadata.namespace, owner), []).append(piece)
        return found


def targets(world: World, wanted: Sequence[str] = ()) -> tuple[Target, ...]:
    """Every ClusterIP port, and every node port at every node's address, of the Services `wanted` ("web" in any
    namespace, "default/web"; none: all). Services that are on their way out, or whose namespace is, are left out."""
    leaving = {n.metadata.name for n in world.namespaces if n.metadata.deletion_timestamp}
    found: list[Target] = []
    for service in world.services:
        meta, spec = service.metadata, service.spec
        full = f"{meta.namespace}/{meta.name}"
        if meta.deletion_timestamp or meta.namespace in leaving or not is_served(service):
            continue
        if wanted and meta.name not in wanted and full not in wanted:
            continue
        for port in spec.ports or ():
            addresses = spec.cluster_ips or (spec.cluster_ip,)
            found += [_target(service, port, address, port.port) for address in addresses]
            if port.node_port:
                found += [
                    _target(service, port, address, port.node_port, node.metadata.name)
                    for node in world.nodes
                    for address in internal_addresses(node)
                    if any((":" in a) == (":" in address) for a in addresses)
                ]
    return tuple(sorted(found, key=_order))


def _order(target: Target) -> tuple[str, str, bool, int, str, str, str]:
    """Within a Service: its own ports first, then its node ports."""
    return (
        target.namespace,
        target.service,
        bool(target.node),
        target.port,
        target.protocol,
        target.node,
        target.address,
    )


def internal_addresses(node: Node) -> tuple[str, ...]:
    return tuple(a.address for a in node.status.addresses if a.type == "InternalIP")


def _target(service: Service, port: ServicePort, address: str, number: int, node: str = "") -> Target:
    return Target(
        namespace=service.metadata.namespace,
        service=service.metadata.name,
        port_name=port.name,
        protocol=cast(Protocol, port.protocol),
        address=address,
        port=number,
        node=node,
        dns=port.port == 53 or port.name in ("dns", "dns-tcp"),
    )


def unmatched(world: World, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those names that no Service has."""
    names = {s.metadata.name for s in world.services}
    names |= {f"{s.metadata.namespace}/{s.metadata.name}" for s in world.services}
    return tuple(name for name in wanted if name not in names)


def expectation(world: World, target: Target, client: Client) -> Expectation:
    """What a connection from `client` to `target` should meet, by the specification that every proxy is held to."""
    service = world.service(target)
    slices = world.slices_of(service)
    node = target.node or client.node
    family: Family = "IPv6" if ":" in target.address else "IPv4"
    entries = resolve(service, slices, NodeContext(node, world.zones.get(node, "")), family)
    packet = Packet(_source(target, client), "", target.address, target.port, target.protocol)
    known = _endpoints(slices, target)
    ready = sum(endpoint.conditions.ready is not False for endpoint in known)
    says = f"{ready} of {len(known)} endpoints ready"
    outcomes = route(entries, packet, Policy(node_port_addresses=frozenset({target.address} if target.node else ())))
    if Rejected() in outcomes:
        return Expectation(Expect.REFUSE, says if known else _why_empty(world, service, target))
    if Dropped() in outcomes:
        policy = "externalTrafficPolicy" if target.node else "internalTrafficPolicy"
        return Expectation(Expect.DROP, f"{says}, none on {node}, and {policy} is Local")
    return Expectation(Expect.REACH, says)


def _source(target: Target, client: Client) -> Source:
    """As the node sees it whose rules decide: who asks for another node's port comes from outside."""
    match client.kind:
        case ClientKind.POD if target.node in ("", client.node):
            return Source.POD
        case ClientKind.NODE if target.node in ("", client.node):
            return Source.NODE
        case _:
            return Source.OUTSIDE


def _endpoints(slices: Iterable[EndpointSlice], target: Target) -> list[Endpoint]:
    """All endpoints that have this port in the target's family, ready or not."""
    family = "IPv6" if ":" in target.address else "IPv4"
    return [
        endpoint
        for piece in slices
        if piece.address_type == family
        and any(
            (port.name or "") == target.port_name and (port.protocol or "TCP") == target.protocol and port.port
            for port in piece.ports or ()
        )
        for endpoint in piece.endpoints or ()
    ]


def _why_empty(world: World, service: Service, target: Target) -> str:
    """No slice has an endpoint with this port. Why?"""
    slices = world.slices_of(service)
    selector = service.spec.selector
    if selector is None:
        return "its EndpointSlices hold no such port" if slices else "no selector, and no EndpointSlice made by hand"
    text = ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "(every pod)"
    chosen = sum(_matches(pod, service) for pod in _alive(world.pods))
    if not chosen:
        return f"selector {text} matches no pod"
    if not any(piece.endpoints for piece in slices):
        return f"selector {text} matches {chosen} pods, none of them has an address yet"
    return f"no endpoint has port {target.port_name or target.port}: see targetPort"


def _alive(pods: Iterable[Pod]) -> Iterable[Pod]:
    return (pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed"))


def _matches(pod: Pod, service: Service) -> bool:
    same = pod.metadata.namespace == service.metadata.namespace
    return same and all(pod.metadata.labels.get(k) == v for k, v in (service.spec.selector or {}).items())
