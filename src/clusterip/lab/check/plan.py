"""What to try, and what the API lets one expect of it. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from clusterip.lab.check.values import Client, ClientKind, Expect, Expectation, Target
from clusterip.model.objects import Endpoint, EndpointSlice, Namespace, Node, Pod, Service
from clusterip.services.resolve import SERVICE_NAME_LABEL, ZONE_LABEL, NodeContext, is_served, resolve
from clusterip.services.route import Dropped, Packet, Policy, Rejected, Source, route
from clusterip.services.table import FAMILIES, Entry, Family, FrontendKind

_KINDS = tuple(FrontendKind)
_NOWHERE: Mapping[Family, str] = {"IPv4": "0.0.0.0", "IPv6": "::"}  # noqa: S104  (a source, to which nothing is bound)


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
    """Every port at every address of the Services `wanted` ("web" in any namespace, "default/web"; none: all): the
    ClusterIPs, external IPs, those of load balancers that proxies answer for, and every node's own for a node port.
    Services that are on their way out, or whose namespace is, are left out."""
    leaving = {n.metadata.name for n in world.namespaces if n.metadata.deletion_timestamp}
    found: list[Target] = []
    for service in world.services:
        meta = service.metadata
        full = f"{meta.namespace}/{meta.name}"
        if meta.deletion_timestamp or meta.namespace in leaving or not is_served(service):
            continue
        if wanted and meta.name not in wanted and full not in wanted:
            continue
        entries = (e for family in FAMILIES for e in resolve(service, (), NodeContext(""), family))
        found += [target for entry in entries for target in _targets(entry, world.nodes)]
    return tuple(sorted(found, key=_order))


def _targets(entry: Entry, nodes: Sequence[Node]) -> Iterator[Target]:
    for kind, address, port, _ in entry.frontends():
        if kind is not FrontendKind.NODE_PORT:
            yield _target(entry, kind, address, port)
            continue
        for node in nodes:
            for own in internal_addresses(node):
                if (":" in own) == (entry.family == "IPv6"):
                    yield _target(entry, kind, own, port, node.metadata.name)


def _order(target: Target) -> tuple[str, str, int, int, str, str, str, str]:
    """Within a Service: its own addresses first, node ports last."""
    return (
        target.namespace,
        target.service,
        _KINDS.index(target.kind),
        target.port,
        target.protocol,
        target.node,
        target.family,
        target.address,
    )


def internal_addresses(node: Node) -> tuple[str, ...]:
    return tuple(a.address for a in node.status.addresses if a.type == "InternalIP")


def _target(entry: Entry, kind: FrontendKind, address: str, number: int, node: str = "") -> Target:
    return Target(
        namespace=entry.name.namespace,
        service=entry.name.service,
        port_name=entry.name.port,
        protocol=entry.protocol,
        address=address,
        port=number,
        kind=kind,
        node=node,
        dns=entry.port == 53 or entry.name.port in ("dns", "dns-tcp"),
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
    entries = resolve(service, slices, NodeContext(node, world.zones.get(node, "")), target.family)
    sender = client.address(target.family)
    # Whether source ranges admit somebody without a known address cannot be said.
    anybody = [replace(entry, source_ranges=()) for entry in entries]
    packet = Packet(
        _source(target, client), sender or _NOWHERE[target.family], target.address, target.port, target.protocol
    )
    known = _endpoints(slices, target)
    ready = sum(endpoint.conditions.ready is not False for endpoint in known)
    says = f"{ready} of {len(known)} endpoints ready"
    policy = Policy(node_port_addresses=frozenset({target.address} if target.node else ()))
    outcomes = route(entries if sender else anybody, packet, policy)
    if Rejected() in outcomes:
        # Iptables mode refuses for external addresses what comes in or through, not what a node sends itself.
        goes_out = client.kind is ClientKind.NODE and target.kind in (
            FrontendKind.EXTERNAL_IP,
            FrontendKind.LOAD_BALANCER,
        )
        expect = Expect.NOT_REACH if goes_out else Expect.REFUSE
        return Expectation(expect, says if known else _why_empty(world, service, target))
    if Dropped() in outcomes:
        if Dropped() not in route(anybody, packet, policy):
            return Expectation(Expect.DROP, f"{sender} is not within loadBalancerSourceRanges")
        field = "externalTrafficPolicy" if target.kind.external else "internalTrafficPolicy"
        return Expectation(Expect.DROP, f"{says}, none on {node}, and {field} is Local")
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
    return [
        endpoint
        for piece in slices
        if piece.address_type == target.family
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
    return (pod for pod in pods if not pod.status.ended)


def _matches(pod: Pod, service: Service) -> bool:
    same = pod.metadata.namespace == service.metadata.namespace
    return same and all(pod.metadata.labels.get(k) == v for k, v in (service.spec.selector or {}).items())
