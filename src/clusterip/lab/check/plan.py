"""What to try, and what the API lets one expect of it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterip.lab.check.values import Client, ClientKind, Expect, Expectation, Target
from clusterip.model.objects import Endpoint, EndpointSlice, Namespace, Node, Pod, Service, ServicePort

HEADLESS = "None"
SERVICE_NAME = "kubernetes.io/service-name"
ANSWERING = ("ClusterIP", "NodePort", "LoadBalancer")


@dataclass(frozen=True, slots=True)
class World:
    """What the API said, all of it at about one moment."""

    services: tuple[Service, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    namespaces: tuple[Namespace, ...] = ()

    def slices_of(self, service: Service) -> tuple[EndpointSlice, ...]:
        meta = service.metadata
        return tuple(
            piece
            for piece in self.slices
            if piece.metadata.namespace == meta.namespace and piece.metadata.labels.get(SERVICE_NAME) == meta.name
        )

    def service(self, target: Target) -> Service:
        """Raises StopIteration if the world does not know it; every target comes from a world."""
        return next(
            s for s in self.services if (s.metadata.namespace, s.metadata.name) == (target.namespace, target.service)
        )


def targets(world: World, wanted: Sequence[str] = ()) -> tuple[Target, ...]:
    """Every ClusterIP port, and every node port at every node's address, of the Services `wanted` ("web" in any
    namespace, "default/web"; none: all). Services that are on their way out, or whose namespace is, are left out."""
    leaving = {n.metadata.name for n in world.namespaces if n.metadata.deletion_timestamp}
    found: list[Target] = []
    for service in world.services:
        meta, spec = service.metadata, service.spec
        full = f"{meta.namespace}/{meta.name}"
        if meta.deletion_timestamp or meta.namespace in leaving or spec.type not in ANSWERING:
            continue
        if wanted and meta.name not in wanted and full not in wanted:
            continue
        for port in spec.ports or ():
            addresses = [a for a in spec.cluster_ips or (spec.cluster_ip,) if a and a != HEADLESS]
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
        protocol=port.protocol,
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
    """What a connection from `client` to `target` should meet, by the Service's slices and policies.

    An endpoint counts if it is ready; if none is, those that still serve while they terminate.
    """
    service = world.service(target)
    known = _endpoints(world, service, target)
    usable = _usable(known)
    if not usable:
        return Expectation(Expect.REFUSE, _why_empty(world, service, target, known))
    says = f"{len(usable)} of {len(known)} endpoint{'s are' if len(known) != 1 else ' is'} ready"
    policy, node = _kept_local(service, target, client)
    if policy and not _usable([endpoint for endpoint in known if endpoint.node_name == node]):
        return Expectation(Expect.DROP, f"{says}, none on {node}, and {policy} is Local")
    return Expectation(Expect.REACH, says)


def _kept_local(service: Service, target: Target, client: Client) -> tuple[str, str]:
    """The policy that keeps the connection to endpoints of one node, and that node; ("", "") if none does.

    A ClusterIP follows internalTrafficPolicy on the client's node. A node port follows externalTrafficPolicy on the
    node that is asked, but whoever is at home there, any pod and that node itself, is let through to all endpoints.
    """
    spec = service.spec
    if not target.node:
        return ("internalTrafficPolicy", client.node) if spec.internal_traffic_policy == "Local" else ("", "")
    at_home = client.kind is ClientKind.POD or (client.kind is ClientKind.NODE and client.node == target.node)
    if spec.external_traffic_policy == "Local" and not at_home:
        return "externalTrafficPolicy", target.node
    return "", ""


def _endpoints(world: World, service: Service, target: Target) -> list[Endpoint]:
    """All endpoints that have this port in the target's family."""
    family = "IPv6" if ":" in target.address else "IPv4"
    known: list[Endpoint] = []
    for piece in world.slices_of(service):
        has_port = any(
            (port.name or "") == target.port_name and (port.protocol or "TCP") == target.protocol and port.port
            for port in piece.ports or ()
        )
        if piece.address_type == family and has_port:
            known += piece.endpoints or ()
    return known


def _usable(known: Sequence[Endpoint]) -> list[Endpoint]:
    ready = [endpoint for endpoint in known if endpoint.conditions.ready is not False]
    return ready or [e for e in known if e.conditions.serving is not False and e.conditions.terminating]


def _why_empty(world: World, service: Service, target: Target, known: Sequence[Endpoint]) -> str:
    if known:
        return f"0 of {len(known)} endpoint{'s are' if len(known) != 1 else ' is'} ready"
    slices = world.slices_of(service)
    selector = service.spec.selector
    if selector is None:
        return (
            "no selector, and no EndpointSlice made by hand" if not slices else "its EndpointSlices hold no such port"
        )
    text = ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "(every pod)"
    chosen = [pod for pod in _alive(world.pods) if _matches(pod, service)]
    if not chosen:
        return f"no endpoint: selector {text} matches no pod"
    if not any(piece.endpoints for piece in slices):
        return f"no endpoint: selector {text} matches {len(chosen)} pods, none of them has an address yet"
    return f"no endpoint has port {target.port_name or target.port}: see targetPort"


def _alive(pods: Iterable[Pod]) -> Iterable[Pod]:
    return (pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed"))


def _matches(pod: Pod, service: Service) -> bool:
    same = pod.metadata.namespace == service.metadata.namespace
    return same and all(pod.metadata.labels.get(k) == v for k, v in (service.spec.selector or {}).items())
