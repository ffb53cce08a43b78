"""What Services hold that nothing reads or does: ExternalName, headless. And what ClientIP affinity means. Pure."""

from collections.abc import Iterator

from clusterip.diagnosis.doctor.backends import service_object
from clusterip.diagnosis.doctor.known import Key, Known, key_of
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.model import objects as o


def find(known: Known) -> Iterator[Finding]:
    for key, service in known.services.items():
        if service.spec.type == "ExternalName":
            yield from _external_name(known, key, service)
        elif service.spec.cluster_ip == "None":
            yield from _headless_ports(known, key, service)


def _external_name(known: Known, key: Key, service: o.Service) -> Iterator[Finding]:
    spec = service.spec
    unread = [
        *([f"selector ({', '.join(f'{k}={v}' for k, v in spec.selector.items())})"] if spec.selector else []),
        *([f"ports ({', '.join(str(p.port) for p in spec.ports)})"] if spec.ports else []),
    ]
    if not unread:
        return
    message = f"The Service is no more than a name in DNS for {spec.external_name}: nothing reads its "
    message += f"{' and '.join(unread)}. Clients connect to that name with the port that they choose themselves."
    evidence = (known.evidence("Service", key, f"type: ExternalName, externalName: {spec.external_name}"),)
    remedy = f"take them out, or for pods: kubectl patch service {key.name} -n {key.namespace} -p "
    remedy += '\'{"spec":{"type":"ClusterIP","externalName":null}}\''
    yield Finding("externalname-selector", "W", service_object(key), message, evidence, None, remedy)


def _headless_ports(known: Known, key: Key, service: o.Service) -> Iterator[Finding]:
    for port in service.spec.ports or ():
        number, evidence = _target(known, key, service, port)
        if not number or number == port.port:
            continue
        target = f"{port.target_port} ({number})" if isinstance(port.target_port, str) else f"{number}"
        message = "The Service is headless: DNS gives the pods' own addresses, and nothing translates ports. Port "
        message += f"{port.port} reaches port {port.port} of the pod; targetPort {target} has no effect. Clients must "
        message += f"use {number}."
        said = known.evidence("Service", key, f"clusterIP: None, port: {port.port}, targetPort: {port.target_port}")
        remedy = f"connect to port {number}, or give the Service a ClusterIP (delete it, and create it without "
        remedy += "clusterIP: None)"
        yield Finding(
            "headless-port-remap", "W", service_object(key, port.name), message, (said, *evidence), None, remedy
        )


def _target(known: Known, key: Key, service: o.Service, port: o.ServicePort) -> tuple[int, tuple[Evidence, ...]]:
    """Where the pods listen, and what shows it; 0: not known."""
    if isinstance(port.target_port, int):
        return port.target_port, ()
    for pod in known.pods:
        selected = service.spec.selector and service.spec.selector.items() <= pod.metadata.labels.items()
        if pod.metadata.namespace != key.namespace or not selected:
            continue
        for container in pod.spec.containers:
            for declared in container.ports:
                if declared.name == port.target_port and declared.protocol == port.protocol:
                    text = f"pod {pod.metadata.name}: {declared.name} is containerPort {declared.container_port}"
                    return declared.container_port, (known.evidence("Pod", key_of(pod), text),)
    for s in known.slices_of.get(key, ()):
        for p in s.ports or ():
            if (p.name or "") == port.name and p.port:
                text = f"slice {s.metadata.name}: port {p.name} is {p.port}"
                return p.port, (known.evidence("EndpointSlice", key_of(s), text),)
    return 0, ()
