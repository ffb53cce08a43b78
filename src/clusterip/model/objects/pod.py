"""A Pod: its containers, their probes, and how they are."""

from msgspec import field

from clusterip.model.objects.meta import Condition, Labels, ObjectMeta, Value


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


ENDED = ("Succeeded", "Failed")  # phases of a pod that nothing runs in any more, for good


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

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


class Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
