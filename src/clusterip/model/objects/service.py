"""A Service: its stable address, its ports, whom it selects."""

from msgspec import field

from clusterip.model.objects.meta import Labels, ObjectMeta, Value


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
