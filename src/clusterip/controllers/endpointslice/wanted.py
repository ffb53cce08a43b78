"""Which endpoints a Service wants: its pods, grouped by the ports that they serve. Pure.

Source: Kubernetes docs, "EndpointSlices"; conformance 3.4, 3.5, 3.6.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeAlias

from clusterip.client.view import View
from clusterip.model.objects import (
    Container,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    Node,
    ObjectReference,
    Pod,
    Service,
    ServicePort,
)

ZONE = "topology.kubernetes.io/zone"
FAMILIES = {4: "IPv4", 6: "IPv6"}

Ports: TypeAlias = tuple[EndpointPort, ...]  # sorted: two pods with the same ports are of one group


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that share slices."""

    ports: Ports
    endpoints: tuple[Endpoint, ...]


def families(service: Service) -> tuple[str, ...]:
    """The address types of its slices."""
    spec = service.spec
    if spec.ip_families:
        return spec.ip_families
    found = [family for ip in (*spec.cluster_ips, spec.cluster_ip) if (family := family_of(ip))]
    # A headless Service that was stored before families were: pods of both kinds may be meant.
    return tuple(dict.fromkeys(found)) or ("IPv4", "IPv6")


def family_of(address: str) -> str:
    """ "" for what is no address."""
    try:
        return FAMILIES[ip_address(address).version]
    except ValueError:
        return ""


def groups(service: Service, pods: Iterable[Pod], view: View, family: str) -> tuple[Group, ...]:
    """The endpoints of one address family, in the order of their pods' names."""
    found: dict[Ports, list[Endpoint]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        address = address_of(pod, family)
        if not address or pod.status.ended:
            continue
        node = view.get(Node, "", pod.spec.node_name)
        if node is None and not service.spec.publish_not_ready_addresses:
            continue  # planned again when the node appears
        found.setdefault(ports_of(service, pod), []).append(endpoint(service, pod, node, address))
    return tuple(Group(ports, tuple(endpoints)) for ports, endpoints in found.items())


def address_of(pod: Pod, family: str) -> str:
    ips = [item.ip for item in pod.status.pod_ips] or [pod.status.pod_ip]
    return next((ip for ip in ips if family_of(ip) == family), "")


def endpoint(service: Service, pod: Pod, node: Node | None, address: str) -> Endpoint:
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=(address,),
        conditions=conditions(pod, publish_not_ready=service.spec.publish_not_ready_addresses),
        hostname=pod.spec.hostname if named else None,
        node_name=pod.spec.node_name or None,
        zone=(node.metadata.labels.get(ZONE) or None) if node else None,
        target_ref=ObjectReference(
            kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid
        ),
    )


def conditions(pod: Pod, *, publish_not_ready: bool) -> EndpointConditions:
    serving, terminating = is_ready(pod), pod.metadata.deletion_timestamp is not None
    return EndpointConditions(
        ready=publish_not_ready or (serving and not terminating), serving=serving, terminating=terminating
    )


def is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def ports_of(service: Service, pod: Pod) -> Ports:
    """Those of the Service's ports that this pod can serve, with the pod's own numbers."""
    found = (
        EndpointPort(name=port.name, protocol=port.protocol, port=number, app_protocol=port.app_protocol)
        for port in service.spec.ports or ()
        if (number := target_number(port, pod))
    )
    return tuple(sorted(found, key=port_key))


def port_key(port: EndpointPort) -> tuple[str, str, int, str]:
    return port.name or "", port.protocol or "TCP", port.port or 0, port.app_protocol or ""


def target_number(port: ServicePort, pod: Pod) -> int:
    """0: the pod has no port of that name."""
    if isinstance(port.target_port, int):
        return port.target_port or port.port
    if not port.target_port:
        return port.port
    return next(
        (
            declared.container_port
            for container in _serving_containers(pod)
            for declared in container.ports
            if declared.name == port.target_port and declared.protocol == port.protocol
        ),
        0,
    )


def _serving_containers(pod: Pod) -> tuple[Container, ...]:
    """Init containers that always restart run beside the others: sidecars."""
    return (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
