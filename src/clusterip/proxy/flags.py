"""kube-proxy's command line, as a table: each flag and the configuration field it sets. Pure.

A configuration file makes most flags mute. Source: kube-proxy 1.36.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from clusterip.proxy.config import ProxyConfig, Section

Kind: TypeAlias = Literal["text", "bool", "int", "float", "duration", "list", "gates"]


@dataclass(frozen=True, slots=True)
class Flag:
    name: str  # without dashes
    path: str  # of the field, in Python's names: "iptables.sync_period"; "" sets none by itself
    kind: Kind
    help: str
    with_file: bool = False  # it still counts when there is a configuration file


FLAGS: tuple[Flag, ...] = (
    Flag("feature-gates", "feature_gates", "gates", "gates to switch, as Name=true,Name=false"),
    Flag("kubeconfig", "client_connection.kubeconfig", "text", "where the API server is and who we are to it"),
    Flag("kube-api-content-type", "client_connection.content_type", "text", "accepted, without effect: we speak JSON"),
    Flag("kube-api-burst", "client_connection.burst", "int", "accepted, without effect: three watches ask little"),
    Flag("kube-api-qps", "client_connection.qps", "float", "accepted, without effect, as the burst"),
    Flag("hostname-override", "hostname_override", "text", "name of our Node, if not the host's", with_file=True),
    Flag("bind-address", "bind_address", "text", "the node's own address; decides the first family"),
    Flag("healthz-bind-address", "healthz_bind_address", "text", 'where to serve health; "" to switch off'),
    Flag("metrics-bind-address", "metrics_bind_address", "text", 'where to serve metrics; "" to switch off'),
    Flag("healthz-port", "", "int", "deprecated: port of --healthz-bind-address, 0 to switch off"),
    Flag("metrics-port", "", "int", "deprecated: port of --metrics-bind-address, 0 to switch off"),
    Flag("bind-address-hard-fail", "bind_address_hard_fail", "bool", "a port that is taken is fatal"),
    Flag("profiling", "enable_profiling", "bool", "accepted, without effect"),
    Flag("show-hidden-metrics-for-version", "show_hidden_metrics_for_version", "text", "accepted, without effect"),
    Flag("proxy-mode", "mode", "text", "nftables (the default), iptables, ipvs or ebpf"),
    Flag("iptables-masquerade-bit", "iptables.masquerade_bit", "int", "bit of the mark for masquerading, 0 to 31"),
    Flag("masquerade-all", "iptables.masquerade_all", "bool", "masquerade everything sent to a ClusterIP"),
    Flag("iptables-localhost-nodeports", "iptables.localhost_node_ports", "bool", "node ports on 127.0.0.1 (IPv4)"),
    Flag("iptables-sync-period", "iptables.sync_period", "duration", "between checks of the rules"),
    Flag("iptables-min-sync-period", "iptables.min_sync_period", "duration", "at least this between syncs"),
    Flag("ipvs-sync-period", "ipvs.sync_period", "duration", "between checks of the rules"),
    Flag("ipvs-min-sync-period", "ipvs.min_sync_period", "duration", "at least this between syncs"),
    Flag("ipvs-scheduler", "ipvs.scheduler", "text", "how backends take turns"),
    Flag("ipvs-exclude-cidrs", "ipvs.exclude_cidrs", "list", "virtual servers to leave alone"),
    Flag("ipvs-strict-arp", "ipvs.strict_arp", "bool", "answer ARP only for an interface's own addresses"),
    Flag("ipvs-tcp-timeout", "ipvs.tcp_timeout", "duration", "of idle TCP connections, 0 to leave"),
    Flag("ipvs-tcpfin-timeout", "ipvs.tcp_fin_timeout", "duration", "of TCP connections after FIN, 0 to leave"),
    Flag("ipvs-udp-timeout", "ipvs.udp_timeout", "duration", "of UDP flows, 0 to leave"),
    Flag("ebpf-cgroup", "ebpf.cgroup", "text", "whose sockets are served in ebpf mode, if not the machine's"),
    Flag("ebpf-directory", "ebpf.directory", "text", "where to mount a bpf file system for ebpf mode"),
    Flag("detect-local-mode", "detect_local_mode", "text", "how a pod's packets are told from others'"),
    Flag("pod-bridge-interface", "detect_local.bridge_interface", "text", "the pods' bridge"),
    Flag("pod-interface-name-prefix", "detect_local.interface_name_prefix", "text", "how pods' interfaces begin"),
    Flag("cluster-cidr", "cluster_cidr", "text", "where pods are: a CIDR, or one a family"),
    Flag("nodeport-addresses", "node_port_addresses", "list", 'CIDRs of addresses that serve node ports, or "primary"'),
    Flag("oom-score-adj", "oom_score_adj", "int", "-1000 to 1000"),
    Flag("conntrack-max-per-core", "conntrack.max_per_core", "int", "tracked connections a core, 0 to leave"),
    Flag("conntrack-min", "conntrack.min", "int", "tracked connections at least"),
    Flag("conntrack-tcp-timeout-established", "conntrack.tcp_established_timeout", "duration", "0 to leave"),
    Flag("conntrack-tcp-timeout-close-wait", "conntrack.tcp_close_wait_timeout", "duration", "0 to leave"),
    Flag("conntrack-tcp-be-liberal", "conntrack.tcp_be_liberal", "bool", "take out-of-window packets for valid"),
    Flag("conntrack-udp-timeout", "conntrack.udp_timeout", "duration", "of UDP flows without answer, 0 to leave"),
    Flag("conntrack-udp-timeout-stream", "conntrack.udp_stream_timeout", "duration", "of UDP flows, 0 to leave"),
    Flag("config-sync-period", "config_sync_period", "duration", "accepted, without effect: a watch loses nothing"),
    Flag("logging-format", "logging.format", "text", "text or json", with_file=True),
    Flag("log-flush-frequency", "logging.flush_frequency", "duration", "accepted, without effect", with_file=True),
    Flag("v", "logging.verbosity", "int", "what to log; from 4 on also details", with_file=True),
    Flag("vmodule", "", "text", "accepted, without effect", with_file=True),
)

Value: TypeAlias = object  # of the flag's kind


@dataclass(frozen=True, slots=True)
class Applied:
    config: ProxyConfig  # not yet checked nor completed
    off: frozenset[str] = frozenset()  # servers that were switched off: fields' names
    ignored: tuple[str, ...] = ()  # flags that have no effect beside a configuration file


def apply(config: ProxyConfig, given: Mapping[str, Value], from_file: bool) -> Applied:
    """`given`: what was on the command line, by flag's name."""
    ignored, off = [], set()
    for flag in FLAGS:
        if flag.name not in given:
            continue
        if from_file and not flag.with_file:
            ignored.append(f"--{flag.name}")
            continue
        if flag.path:
            config = _replaced(config, flag.path.split("."), given[flag.name])
        if flag.path.endswith("_bind_address") and given[flag.name] == "":
            off.add(flag.path)
    if not from_file:
        for server in ("healthz", "metrics"):
            config = _with_old_port(config, server, given.get(f"{server}-port"), off)
        if "masquerade-all" in given:
            config = _replaced(config, ["nftables", "masquerade_all"], given["masquerade-all"])
    return Applied(config, frozenset(off), tuple(ignored))


def switched_off(config: ProxyConfig, off: frozenset[str]) -> ProxyConfig:
    """A completed configuration has a default address for every server; these are to have none."""
    return msgspec.structs.replace(config, **dict.fromkeys(off, ""))


def _with_old_port(config: ProxyConfig, server: str, port: Value, off: set[str]) -> ProxyConfig:
    field = f"{server}_bind_address"
    if port == 0:
        off.add(field)
    elif isinstance(port, int):
        address = getattr(config, field) or {"healthz": "0.0.0.0", "metrics": "127.0.0.1"}[server]  # noqa: S104
        if address.count(":") != 1 and not address.startswith("["):
            shown = f"[{address}]" if ":" in address else address
            return _replaced(config, [field], f"{shown}:{port}")
    return config


def _replaced(config: ProxyConfig, path: list[str], value: Value) -> ProxyConfig:
    """A copy with one field, of itself or of a section, changed."""
    match path:
        case [name]:
            return msgspec.structs.replace(config, **{name: value})
        case [section, name]:
            part: Section = getattr(config, section)
            return msgspec.structs.replace(config, **{section: msgspec.structs.replace(part, **{name: value})})
        case _:
            raise AssertionError(path)
