"""Rules for a Service, E10 to E50 of conformance 2.9. Addresses and families: service_addresses."""

from collections.abc import Iterator
from typing import Any

from clusterip.model import names
from clusterip.model.causes import FIXED, IMMUTABLE, duplicate, forbidden, invalid, not_supported, required
from clusterip.model.defaults import externally_accessible
from clusterip.model.service_update import is_headless, needs_health_check_port
from clusterip.model.status import Cause, Object
from clusterip.model.validation import addresses, meta, service_addresses

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
POLICIES = ("Cluster", "Local")
DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_LONGEST_AFFINITY = 86400  # seconds
_LARGEST_PORT = 65535
_ONLY_BALANCER = "may only be used when `type` is 'LoadBalancer'"


def validate(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    before = (old or {}).get("spec") or {}
    return [
        *_type(spec),
        *_ports(spec),
        *meta.labels(spec.get("selector"), "spec.selector"),
        *_affinity(spec),
        *service_addresses.validate(spec, before),
        *_balancer(obj, spec, before),
        *_traffic(spec, before),
        *_topology(obj["metadata"].get("annotations") or {}),
        *_status(obj, spec, old),
    ]


def _type(spec: Object) -> Iterator[Cause]:
    kind = spec.get("type")
    if kind not in TYPES:
        yield not_supported("spec.type", kind, TYPES) if kind else required("spec.type")
    if kind in ("NodePort", "LoadBalancer") and is_headless(spec):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        name = spec.get("externalName") or ""
        if not name:
            yield required("spec.externalName")
        elif wrong := names.dns_subdomain(name.removesuffix(".")):
            yield invalid("spec.externalName", name, wrong)


# --- ports -----------------------------------------------------------------------------------------------------


def _ports(spec: Object) -> Iterator[Cause]:
    ports = spec.get("ports") or []
    if not ports and not is_headless(spec) and spec.get("type") != "ExternalName":
        yield required("spec.ports")
    for index, port in enumerate(ports):
        yield from _port(port, f"spec.ports[{index}]", name_required=len(ports) > 1)
        if spec.get("type") == "ClusterIP" and port.get("nodePort"):
            yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    yield from _repeated(ports)


def _port(port: Object, field: str, *, name_required: bool) -> Iterator[Cause]:
    name = port.get("name") or ""
    if not name and name_required:
        yield required(f"{field}.name")
    elif name and (wrong := names.dns_label(name)):
        yield invalid(f"{field}.name", name, wrong)
    yield from port_number(port.get("port", 0), f"{field}.port")
    yield from protocol(port.get("protocol"), f"{field}.protocol")
    yield from port_or_name(port.get("targetPort", 0), f"{field}.targetPort")
    yield from app_protocol(port.get("appProtocol"), f"{field}.appProtocol")
    if (port.get("nodePort") or 0) < 0:
        yield invalid(f"{field}.nodePort", port["nodePort"], f"must be between 0 and {_LARGEST_PORT}, inclusive")


def port_number(number: int, field: str) -> Iterator[Cause]:
    if not 0 < number <= _LARGEST_PORT:
        yield invalid(field, number, f"must be between 1 and {_LARGEST_PORT}, inclusive")


def port_or_name(port: int | str, field: str) -> Iterator[Cause]:
    if isinstance(port, int):
        yield from port_number(port, field)
    elif wrong := names.port_name(port):
        yield invalid(field, port, wrong)


def protocol(name: str | None, field: str) -> Iterator[Cause]:
    if not name:
        yield required(field)
    elif name not in PROTOCOLS:
        yield not_supported(field, name, PROTOCOLS)


def app_protocol(name: str | None, field: str) -> Iterator[Cause]:
    if name is not None and (wrong := names.qualified_name(name)):
        yield invalid(field, name, wrong)


def _repeated(ports: list[Object]) -> Iterator[Cause]:
    """Names, (protocol, port) and (protocol, nodePort) are unique; the allocator keeps numbers apart besides."""
    seen: set[tuple[Any, ...]] = set()

    def again(*key: Any) -> bool:
        if key in seen:
            return True
        seen.add(key)
        return False

    for index, port in enumerate(ports):
        name, proto, node_port = port.get("name") or "", port.get("protocol"), port.get("nodePort")
        if name and again("name", name):
            yield duplicate(f"spec.ports[{index}].name", name)
        if again("port", proto, port.get("port")):
            yield duplicate(f"spec.ports[{index}]", {"port": port.get("port"), "protocol": proto})
        if node_port and again("nodePort", proto, node_port):
            yield duplicate(f"spec.ports[{index}].nodePort", node_port)


# --- affinity, balancer, traffic -------------------------------------------------------------------------------


def _affinity(spec: Object) -> Iterator[Cause]:
    match spec.get("sessionAffinity"):
        case None | "":
            yield required("spec.sessionAffinity")
        case "None":
            if spec.get("sessionAffinityConfig") is not None:
                yield forbidden("spec.sessionAffinityConfig", "must not be set when session affinity is None")
        case "ClientIP":
            field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            client_ip = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
            timeout = client_ip.get("timeoutSeconds")
            if timeout is None:
                yield required(field, "must be set when session affinity is ClientIP")
            elif not 0 < timeout <= _LONGEST_AFFINITY:
                yield invalid(field, timeout, f"must be greater than 0 and less than or equal to {_LONGEST_AFFINITY}")
        case other:
            yield not_supported("spec.sessionAffinity", other, ("ClientIP", "None"))


def _balancer(obj: Object, spec: Object, before: Object) -> Iterator[Cause]:
    balancer = spec.get("type") == "LoadBalancer"
    yield from _source_ranges(obj, spec, before)
    allocate = spec.get("allocateLoadBalancerNodePorts")
    if balancer and allocate is None:
        yield required("spec.allocateLoadBalancerNodePorts")
    elif not balancer and allocate is not None:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCER)
    kind = spec.get("loadBalancerClass")
    if not balancer and kind is not None:
        yield forbidden("spec.loadBalancerClass", _ONLY_BALANCER)
    elif kind is not None and (wrong := names.qualified_name(kind)):
        yield invalid("spec.loadBalancerClass", kind, wrong)
    if balancer and before.get("type") == "LoadBalancer" and kind != before.get("loadBalancerClass"):
        yield invalid("spec.loadBalancerClass", kind, FIXED)


def _source_ranges(obj: Object, spec: Object, before: Object) -> Iterator[Cause]:
    ranges = spec.get("loadBalancerSourceRanges") or []
    annotation = (obj["metadata"].get("annotations") or {}).get(SOURCE_RANGES, "")
    if spec.get("type") != "LoadBalancer":
        if ranges:
            yield forbidden("spec.loadBalancerSourceRanges", _ONLY_BALANCER)
        elif annotation:
            yield forbidden(f"metadata.annotations[{SOURCE_RANGES}]", _ONLY_BALANCER)
        return
    kept = {one.strip() for one in before.get("loadBalancerSourceRanges") or ()}
    for index, one in enumerate(ranges):
        if wrong := addresses.network(one.strip(), kept):
            yield invalid(f"spec.loadBalancerSourceRanges[{index}]", one, wrong)
    if not ranges and annotation.strip():
        for one in annotation.split(","):
            if wrong := addresses.network(one.strip()):
                yield invalid(f"metadata.annotations[{SOURCE_RANGES}]", annotation, wrong)


def _traffic(spec: Object, before: Object) -> Iterator[Cause]:
    yield from _external_policy(spec)
    health = spec.get("healthCheckNodePort") or 0
    field = "spec.healthCheckNodePort"
    if needs_health_check_port(spec):
        if needs_health_check_port(before) and health != (before.get("healthCheckNodePort") or 0):
            yield forbidden(field, IMMUTABLE)
        elif not 0 <= health <= _LARGEST_PORT:
            yield invalid(field, health, f"must be between 0 and {_LARGEST_PORT}, inclusive")
    elif health:
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid(field, health, why)
    internal = spec.get("internalTrafficPolicy")
    if internal is None:
        if spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer"):
            yield required("spec.internalTrafficPolicy")
    elif internal not in POLICIES:
        yield not_supported("spec.internalTrafficPolicy", internal, POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        yield not_supported("spec.trafficDistribution", distribution, DISTRIBUTIONS)


def _external_policy(spec: Object) -> Iterator[Cause]:
    policy = spec.get("externalTrafficPolicy")
    field = "spec.externalTrafficPolicy"
    if not externally_accessible(spec):
        if policy:
            yield invalid(field, policy, "may only be set for externally-accessible services")
    elif not policy:
        yield required(field, "must be set for externally-accessible services")
    elif policy not in POLICIES:
        yield not_supported(field, policy, POLICIES)


def _topology(annotations: Object) -> Iterator[Cause]:
    mode, hints = annotations.get(TOPOLOGY_MODE), annotations.get(TOPOLOGY_HINTS)
    if mode is not None and hints is not None and mode != hints:
        yield invalid(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, f"must match annotation {TOPOLOGY_HINTS}")


# --- status ----------------------------------------------------------------------------------------------------


def _status(obj: Object, spec: Object, old: Object | None) -> Iterator[Cause]:
    ingress = _ingress(obj)
    if not ingress:
        return
    field = "status.loadBalancer.ingress"
    if spec.get("type") != "LoadBalancer":
        yield forbidden(field, _ONLY_BALANCER)
    kept = {one.get("ip", "") for one in _ingress(old or {})}
    for index, one in enumerate(ingress):
        yield from _one_ingress(one, f"{field}[{index}]", kept)


def _one_ingress(one: Object, field: str, kept: set[str]) -> Iterator[Cause]:
    ip, mode, hostname = one.get("ip") or "", one.get("ipMode"), one.get("hostname") or ""
    if ip and (wrong := addresses.address(ip, kept)):
        yield invalid(f"{field}.ip", ip, wrong)
    if ip and not mode:
        yield required(f"{field}.ipMode", "must be specified when `ip` is set")
    elif mode is not None and not ip:
        yield forbidden(f"{field}.ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in ("Proxy", "VIP"):
        yield not_supported(f"{field}.ipMode", mode, ("Proxy", "VIP"))
    if hostname and addresses.parse(hostname):
        yield invalid(f"{field}.hostname", hostname, "must be a DNS name, not an IP address")
    elif hostname and (wrong := names.dns_subdomain(hostname)):
        yield invalid(f"{field}.hostname", hostname, wrong)


def _ingress(obj: Object) -> list[Object]:
    found: list[Object] = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return found
