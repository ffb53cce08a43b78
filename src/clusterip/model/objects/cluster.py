"""What a cluster is made of: namespaces, nodes, address ranges."""

from msgspec import field

from clusterip.model.objects.meta import Condition, ObjectMeta, Value


class NamespaceSpec(Value, frozen=True):
    finalizers: tuple[str, ...] = ()


class Namespace(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()


class NodeAddress(Value, frozen=True):
    type: str  # "InternalIP", "ExternalIP", "Hostname"
    address: str


class Taint(Value, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(Value, frozen=True):
    pod_cidr: str = field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = field(name="podCIDRs", default=())
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = ()


class NodeStatus(Value, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    allocatable: dict[str, str] = {}


class Node(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServiceCIDRSpec(Value, frozen=True):
    cidrs: tuple[str, ...] = ()


class ServiceCIDRStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()


class ServiceCIDR(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceCIDRSpec = ServiceCIDRSpec()
    status: ServiceCIDRStatus = ServiceCIDRStatus()


class ParentReference(Value, frozen=True):
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""


class IPAddressSpec(Value, frozen=True):
    parent_ref: ParentReference = ParentReference()


class IPAddress(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: IPAddressSpec = IPAddressSpec()
