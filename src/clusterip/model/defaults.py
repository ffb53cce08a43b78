"""What the API fills in when the client leaves it out: the values `kubectl get -o yaml` shows on any cluster.

Addresses, node ports and IP families are not here: they depend on the cluster (service_update, allocation).
Source: Kubernetes API reference, 1.36, and conformance by comparison.
"""

from collections.abc import Callable
from typing import Any

from clusterip.model import pod_defaults
from clusterip.model.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Resource,
)
from clusterip.model.status import Object

CLIENT_IP_TIMEOUT = 10800  # seconds


def apply(resource: Resource, obj: Object) -> None:
    """Completes `obj` in place. Applying twice is applying once."""
    complete = _BY_RESOURCE.get(resource)
    if complete:
        complete(obj)


def externally_accessible(spec: Object) -> bool:
    """Whether clients outside the cluster have an address for it: then externalTrafficPolicy means something."""
    kind = spec.get("type")
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    _fill(spec, "type", "ClusterIP")
    _fill(spec, "sessionAffinity", "None")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", CLIENT_IP_TIMEOUT)
    for port in spec.get("ports", ()):
        _fill(port, "protocol", "TCP")
        _fill(port, "targetPort", port.get("port", 0))
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if externally_accessible(spec):
        _fill(spec, "externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    _service_status(spec, obj.setdefault("status", {}))


def _service_status(spec: Object, status: Object) -> None:
    ingress = status.setdefault("loadBalancer", {}).get("ingress", ())
    if spec["type"] == "LoadBalancer":
        for one in ingress:
            if one.get("ip"):
                one.setdefault("ipMode", "VIP")


def _endpoint_slice(obj: Object) -> None:
    for port in obj.get("ports", ()):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _endpoints(obj: Object) -> None:
    for subset in obj.get("subsets", ()):
        for port in subset.get("ports", ()):
            _fill(port, "protocol", "TCP")


def _namespace(obj: Object) -> None:
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _replica_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    pod_defaults.template(spec.setdefault("template", {}))
    obj.setdefault("status", {}).setdefault("replicas", 0)


def _deployment(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    _fill(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    pod_defaults.template(spec.setdefault("template", {}))
    obj.setdefault("status", {})


def _fill(owner: Object, name: str, value: Any) -> None:
    """For fields whose empty value counts as absent."""
    if not owner.get(name):
        owner[name] = value


_BY_RESOURCE: dict[Resource, Callable[[Object], None]] = {
    SERVICES: _service,
    PODS: pod_defaults.pod,
    ENDPOINT_SLICES: _endpoint_slice,
    ENDPOINTS: _endpoints,
    NAMESPACES: _namespace,
    REPLICA_SETS: _replica_set,
    DEPLOYMENTS: _deployment,
}
