"""The kinds this API serves: the one place that lists them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind and how it is addressed. Source: Kubernetes API reference, 1.36."""

    group: str  # "" for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """What objects say in `apiVersion`: "v1", "apps/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The group-version's path: "/api/v1", "/apis/apps/v1"."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """As errors name it: "services", "deployments.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, ("ns",), ("status", "finalize"))
NODES = Resource("", "v1", "nodes", "Node", False, ("no",), ("status", "proxy"))
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    True,
    ("po",),
    ("status", "log", "exec", "proxy", "binding", "eviction"),
    ("all",),
)
SERVICES = Resource("", "v1", "services", "Service", True, ("svc",), ("status", "proxy"), ("all",))
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", True, ("ep",))
EVENTS = Resource("", "v1", "events", "Event", True, ("ev",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, ("cm",))
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
SERVICE_CIDRS = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False, (), ("status",))
IP_ADDRESSES = Resource("networking.k8s.io", "v1", "ipaddresses", "IPAddress", False, ("ip",))
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, ("deploy",), ("status", "scale"), ("all",))
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, ("rs",), ("status", "scale"), ("all",))
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    ENDPOINTS,
    EVENTS,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    SERVICE_CIDRS,
    IP_ADDRESSES,
    DEPLOYMENTS,
    REPLICA_SETS,
    LEASES,
)

BY_PLURAL: dict[tuple[str, str, str], Resource] = {(r.group, r.version, r.plural): r for r in RESOURCES}
BY_KIND: dict[tuple[str, str], Resource] = {(r.api_version, r.kind): r for r in RESOURCES}

# Bodies that travel but are not stored: they have a shape, no collection of their own.
DELETE_OPTIONS = Resource("", "v1", "", "DeleteOptions", False)
SCALES = Resource("autoscaling", "v1", "", "Scale", True)
EVICTIONS = Resource("policy", "v1", "", "Eviction", True)
BINDINGS = Resource("", "v1", "", "Binding", True)
