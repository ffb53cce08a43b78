"""What a Service document asks for, whatever of it is filled in yet."""

from ipaddress import ip_address

from clusterip.allocation.pool import Address
from clusterip.model.status import Object

NODE_PORT_TYPES = ("NodePort", "LoadBalancer")
HEADLESS = "None"


def spec(service: Object) -> Object:
    found: Object = service.get("spec") or {}
    return found


def ports(service: Object) -> list[Object]:
    found: list[Object] = spec(service).get("ports") or []
    return found


def service_type(service: Object) -> str:
    return str(spec(service).get("type") or "ClusterIP")


def needs_cluster_ip(service: Object) -> bool:
    """Headless ones too: their clusterIP is the word None."""
    return service_type(service) != "ExternalName"


def needs_node_ports(service: Object) -> bool:
    """Its type is one that may have node ports."""
    return service_type(service) in NODE_PORT_TYPES


def gives_node_ports(service: Object) -> bool:
    """Ports without a node port are to get one."""
    match service_type(service):
        case "NodePort":
            return True
        case "LoadBalancer":
            return spec(service).get("allocateLoadBalancerNodePorts") is not False
        case _:
            return False


def needs_health_check_node_port(service: Object) -> bool:
    return service_type(service) == "LoadBalancer" and spec(service).get("externalTrafficPolicy") == "Local"


def cluster_ips(service: Object) -> list[str]:
    found: list[str] = spec(service).get("clusterIPs") or []
    if not found and spec(service).get("clusterIP"):
        return [spec(service)["clusterIP"]]
    return found


def headless(service: Object) -> bool:
    return cluster_ips(service)[:1] == [HEADLESS]


def addresses(service: Object) -> tuple[Address, ...]:
    """The ClusterIPs that are addresses, in order. What is none is for validation to refuse."""
    if not needs_cluster_ip(service):
        return ()
    found = []
    for text in cluster_ips(service):
        try:
            found.append(ip_address(text))
        except ValueError:
            continue
    return tuple(found)


def node_ports(service: Object) -> tuple[int, ...]:
    """All that it holds, its health check's included; each once."""
    held = [int(port.get("nodePort") or 0) for port in ports(service)] if needs_node_ports(service) else []
    if needs_health_check_node_port(service):
        held.append(int(spec(service).get("healthCheckNodePort") or 0))
    return tuple(dict.fromkeys(port for port in held if port))
