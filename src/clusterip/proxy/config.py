"""kube-proxy's configuration file: `kubeproxy.config.k8s.io/v1alpha1`, kind `KubeProxyConfiguration`.

The values, with kube-proxy's defaults; `configfile` reads and writes them, `rules` says what may be in them.
Durations are in seconds (`Duration`). Source: Kubernetes reference of kube-proxy configuration, 1.36.
"""

import msgspec
from msgspec import field

from clusterip.proxy.durations import Duration

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the file."""


class ClientConnection(Section, frozen=True):
    kubeconfig: str = ""  # "": the service account of the pod we are in
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 5
    burst: int = 10


class LogOutput(Section, frozen=True):
    info_buffer_size: str = "0"
    split_stream: bool = False


class LogOptions(Section, frozen=True):
    json: LogOutput = LogOutput()
    text: LogOutput = LogOutput()


class VModule(Section, frozen=True):
    file_pattern: str = ""
    verbosity: int = 0


class Logging(Section, frozen=True):
    format: str = "text"
    flush_frequency: Duration = Duration(5)
    verbosity: int = 0
    vmodule: tuple[VModule, ...] = ()
    options: LogOptions = LogOptions()


class IPTables(Section, frozen=True):
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: Duration = Duration(30)
    min_sync_period: Duration = Duration(1)


class IPVS(Section, frozen=True):
    sync_period: Duration = Duration(30)
    min_sync_period: Duration = Duration(0)
    scheduler: str = ""
    exclude_cidrs: tuple[str, ...] = field(name="excludeCIDRs", default=())
    strict_arp: bool = field(name="strictARP", default=False)
    tcp_timeout: Duration = Duration(0)
    tcp_fin_timeout: Duration = Duration(0)
    udp_timeout: Duration = Duration(0)


class NFTables(Section, frozen=True):
    masquerade_bit: int = 14
    masquerade_all: bool = False
    sync_period: Duration = Duration(30)
    min_sync_period: Duration = Duration(1)


class EBPF(Section, frozen=True):
    """Not kube-proxy's: it has no such mode. Packets that no socket of ours sends are `nftables`'."""

    cgroup: str = ""  # whose processes' sockets are served; "": the machine's root, all of them
    directory: str = "/run/clusterip-ebpf"  # where to mount a bpf file system for what outlives the process
    localhost_node_ports: bool = True  # node ports on 127.0.0.1 and ::1, for the node's own processes


class Winkernel(Section, frozen=True):
    """Read, so that a file that serves Windows nodes too is accepted; without effect here."""

    network_name: str = ""
    source_vip: str = ""
    enable_dsr: bool = field(name="enableDSR", default=False)
    root_hns_endpoint_name: str = ""
    forward_health_check_vip: bool = False


class DetectLocal(Section, frozen=True):
    bridge_interface: str = ""
    interface_name_prefix: str = ""


class Conntrack(Section, frozen=True):
    max_per_core: int = 32768  # 0: leave nf_conntrack_max as it is
    min: int = 131072
    tcp_established_timeout: Duration = Duration(24 * 3600)  # 0, here and below: leave as it is
    tcp_close_wait_timeout: Duration = Duration(3600)
    tcp_be_liberal: bool = False
    udp_timeout: Duration = Duration(0)
    udp_stream_timeout: Duration = Duration(0)


class ProxyConfig(Section, frozen=True):
    feature_gates: dict[str, bool] = {}
    client_connection: ClientConnection = ClientConnection()
    logging: Logging = Logging()
    hostname_override: str = ""
    bind_address: str = "0.0.0.0"  # noqa: S104  nothing is bound to it: it says the node's address and first family
    healthz_bind_address: str = ""  # after `complete`: "" is off
    metrics_bind_address: str = ""  # after `complete`: "" is off
    bind_address_hard_fail: bool = False
    enable_profiling: bool = False
    show_hidden_metrics_for_version: str = ""
    mode: str = ""
    iptables: IPTables = IPTables()
    ipvs: IPVS = IPVS()
    nftables: NFTables = NFTables()
    ebpf: EBPF = EBPF()
    winkernel: Winkernel = Winkernel()
    detect_local_mode: str = ""
    detect_local: DetectLocal = DetectLocal()
    cluster_cidr: str = field(name="clusterCIDR", default="")
    node_port_addresses: tuple[str, ...] = ()
    oom_score_adj: int = -999
    conntrack: Conntrack = Conntrack()
    config_sync_period: Duration = Duration(15 * 60)
    port_range: str = ""  # obsolete, without effect
    windows_run_as_service: bool = False
