"""The API's kinds as frozen values, with the fields this product reads.

Decoded from the bytes of any Kubernetes API server by msgspec; unknown fields are passed over, absent ones take
the defaults below (the API's own). JSON `null` is accepted where Go servers write it (a slice without endpoints).
Source: Kubernetes API reference, 1.36.
"""

from typing import TypeAlias

import msgspec
from msgspec import field

Labels: TypeAlias = dict[str, str]  # never mutated once decoded


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of all: immutable, compared by content, encodes without fields that hold their default."""


class OwnerReference(Value, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Value, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None  # RFC 3339, UTC
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ObjectReference(Value, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class Condition(Value, frozen=True):
    type: str
    status: str = "Unknown"  # "True", "False", "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_update_time: str | None = None  # Deployments
    last_heartbeat_time: str | None = None  # Nodes


class NamespaceSpec(Value, frozen=True):
    finalizers: tuple[str, ...] = ()


class Namespace(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()


# --- Service ---------------------------------------------------------------------------------------------------


class ServicePort(Value, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0
    app_protocol: str | None = None


class ClientIPConfig(Value, frozen=True):
    timeout_seconds: int = 10800


class SessionAffinityConfig(Value, frozen=True):
    client_ip: ClientIPConfig | None = field(name="clientIP", default=None)


class ServiceSpec(Value, frozen=True):
    type: str = "ClusterIP"
    cluster_ip: str = field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = field(name="clusterIPs", default=())
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    ports: tuple[ServicePort, ...] | None = ()
    selector: Labels | None = None  # None: endpoints are managed by hand; {}: every pod of the namespace
    external_ips: tuple[str, ...] = field(name="externalIPs", default=())
    external_name: str = ""
    external_traffic_policy: str = ""  # "", "Cluster", "Local"
    internal_traffic_policy: str | None = None
    load_balancer_source_ranges: tuple[str, ...] = ()
    health_check_node_port: int = 0
    publish_not_ready_addresses: bool = False
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None
    traffic_distribution: str | None = None


class LoadBalancerIngress(Value, frozen=True):
    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None  # None means VIP


class LoadBalancerStatus(Value, frozen=True):
    ingress: tuple[LoadBalancerIngress, ...] | None = ()


class ServiceStatus(Value, frozen=True):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


# --- EndpointSlice ---------------------------------------------------------------------------------------------


class EndpointConditions(Value, frozen=True):
    """`None` means: ready and serving true, terminating false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class HintTarget(Value, frozen=True):
    name: str


class EndpointHints(Value, frozen=True):
    for_zones: tuple[HintTarget, ...] | None = ()
    for_nodes: tuple[HintTarget, ...] | None = ()


class Endpoint(Value, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    target_ref: ObjectReference | None = None
    hints: EndpointHints | None = None


class EndpointPort(Value, frozen=True):
    name: str | None = None
    protocol: str | None = "TCP"
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()


# --- Pod -------------------------------------------------------------------------------------------------------


class ObjectFieldSelector(Value, frozen=True):
    field_path: str  # "status.podIP"


class KeySelector(Value, frozen=True):
    key: str
    name: str = ""  # of the ConfigMap or Secret
    optional: bool = False


class ResourceFieldSelector(Value, frozen=True):
    resource: str


class EnvVarSource(Value, frozen=True):
    """One of them."""

    field_ref: ObjectFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class EnvVar(Value, frozen=True):
    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvSourceName(Value, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFromSource(Value, frozen=True):
    prefix: str = ""
    config_map_ref: EnvSourceName | None = None
    secret_ref: EnvSourceName | None = None


class ContainerPort(Value, frozen=True):
    container_port: int
    name: str = ""
    protocol: str = "TCP"
    host_port: int = 0


class HTTPHeader(Value, frozen=True):
    name: str
    value: str = ""


class HTTPGetAction(Value, frozen=True):
    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(Value, frozen=True):
    port: int | str
    host: str = ""


class ExecAction(Value, frozen=True):
    command: tuple[str, ...] = ()


class Probe(Value, frozen=True):
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    exec: ExecAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class SleepAction(Value, frozen=True):
    seconds: int


class LifecycleHandler(Value, frozen=True):
    """One of them."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Value, frozen=True):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class Container(Value, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    restart_policy: str | None = None  # only in init containers: "Always" makes it a sidecar
    stdin: bool = False
    tty: bool = False


class DNSConfig(Value, frozen=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[dict[str, str], ...] = ()


class HostAlias(Value, frozen=True):
    ip: str
    hostnames: tuple[str, ...] = ()


class PodReadinessGate(Value, frozen=True):
    condition_type: str


class Toleration(Value, frozen=True):
    key: str = ""  # "": every taint
    operator: str = "Equal"  # "Equal", "Exists"
    value: str = ""
    effect: str = ""  # "": every effect


class PodSpec(Value, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: Labels = {}
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    dns_policy: str = "ClusterFirst"
    dns_config: DNSConfig | None = None
    host_aliases: tuple[HostAlias, ...] = ()
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    scheduler_name: str = "default-scheduler"
    tolerations: tuple[Toleration, ...] = ()
    enable_service_links: bool = True  # tell containers of Services by environment variables


class PodIP(Value, frozen=True):
    ip: str


class ContainerStateRunning(Value, frozen=True):
    started_at: str | None = None


class ContainerStateWaiting(Value, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Value, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Value, frozen=True):
    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Value, frozen=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    started: bool | None = None
    image: str = ""
    image_id: str = field(name="imageID", default="")
    container_id: str = field(name="containerID", default="")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Value, frozen=True):
    phase: str = "Pending"
    pod_ip: str = field(name="podIP", default="")
    pod_ips: tuple[PodIP, ...] = field(name="podIPs", default=())
    host_ip: str = field(name="hostIP", default="")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: str | None = None
    reason: str = ""
    message: str = ""


class Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- Node ------------------------------------------------------------------------------------------------------


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


# --- workloads -------------------------------------------------------------------------------------------------


class LabelSelectorRequirement(Value, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Value, frozen=True):
    match_labels: Labels = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class PodTemplateSpec(Value, frozen=True):
    """The template is copied into pods whole, so its spec is kept as the JSON it came in."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class ReplicaSetSpec(Value, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSetStatus(Value, frozen=True):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0


class ReplicaSet(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdate(Value, frozen=True):
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class DeploymentStrategy(Value, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Value, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False
    selector: LabelSelector = LabelSelector()
    strategy: DeploymentStrategy = DeploymentStrategy()
    template: PodTemplateSpec = PodTemplateSpec()


class DeploymentStatus(Value, frozen=True):
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


# --- the rest --------------------------------------------------------------------------------------------------


class EndpointAddress(Value, frozen=True):
    ip: str
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointsPort(Value, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None


class EndpointSubset(Value, frozen=True):
    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointsPort, ...] = ()


class Endpoints(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[EndpointSubset, ...] | None = ()


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


class LeaseSpec(Value, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: Labels = {}


class Event(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    count: int = 1
