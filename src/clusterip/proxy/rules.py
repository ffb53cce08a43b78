"""What a configuration may hold, and what follows from it. Pure.

Source: Kubernetes reference of kube-proxy configuration, 1.36.
"""

import ipaddress
import math
from collections.abc import Iterator

import msgspec

from clusterip.proxy import gates
from clusterip.proxy.config import IPVS, IPTables, NFTables, ProxyConfig
from clusterip.proxy.configfile import Problem, refuse
from clusterip.proxy.durations import Duration
from clusterip.services.table import Family

AVAILABLE = ("iptables", "ipvs", "nftables", "ebpf")
TABLE_MODES = ("nftables", "ebpf")
DETECT_LOCAL = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
HEALTHZ_PORT, METRICS_PORT = 10256, 10249
PRIMARY = "primary"  # instead of CIDRs in nodePortAddresses: the node's own addresses


def complete(config: ProxyConfig, source: str) -> ProxyConfig:
    """The configuration with everything said that follows from the rest. Raises BadInput with all that is wrong."""
    problems = list(check(config))
    if problems:
        raise refuse(source, problems)
    ipv6 = ":" in config.bind_address
    return msgspec.structs.replace(
        config,
        mode=config.mode or "nftables",
        detect_local_mode=config.detect_local_mode or "ClusterCIDR",
        healthz_bind_address=_with_port(config.healthz_bind_address or ("::" if ipv6 else "0.0.0.0"), HEALTHZ_PORT),  # noqa: S104
        metrics_bind_address=_with_port(config.metrics_bind_address or ("::1" if ipv6 else "127.0.0.1"), METRICS_PORT),
    )


def check(config: ProxyConfig) -> Iterator[Problem]:
    yield from (Problem(f"featureGates.{name}", what) for name, what in gates.problems(config.feature_gates))
    yield from _addresses(config)
    yield from _modes(config)
    yield from _periods(config)
    yield from _numbers(config)


def mode_section(config: ProxyConfig) -> IPTables | IPVS | NFTables:
    """The part of a completed configuration that its mode goes by."""
    if config.mode == "ipvs":
        return config.ipvs
    return config.nftables if writes_tables(config) else config.iptables


def writes_tables(config: ProxyConfig) -> bool:
    """The nftables dataplane serves packets: alone, or beneath the sockets of eBPF mode."""
    return config.mode in TABLE_MODES


def primary_family(config: ProxyConfig) -> Family:
    return "IPv6" if ":" in config.bind_address else "IPv4"


def cluster_cidr(config: ProxyConfig, family: Family) -> str:
    """The pods' range of that family, canonical; "" if none is configured."""
    for cidr in filter(None, config.cluster_cidr.split(",")):
        network = ipaddress.ip_network(cidr.strip(), strict=False)
        if f"IPv{network.version}" == family:
            return str(network)
    return ""


def conntrack_max(config: ProxyConfig, cpus: int) -> int:
    """What nf_conntrack_max should be; 0: leave it as it is."""
    scaled = config.conntrack.max_per_core * cpus
    if not config.conntrack.max_per_core:
        return 0
    if scaled < config.conntrack.min:
        return config.conntrack.min
    return min(scaled, max(1_048_576, config.conntrack.min))


def host_and_port(address: str) -> tuple[str, int]:
    """ "[::1]:80" -> ("::1", 80). Raises ValueError."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _with_port(address: str, port: int) -> str:
    if not _is_address(address.strip("[]")):
        return address
    return f"[{address.strip('[]')}]:{port}" if ":" in address else f"{address}:{port}"


def _is_address(words: str) -> bool:
    try:
        ipaddress.ip_address(words)
    except ValueError:
        return False
    return True


def _is_network(words: str) -> bool:
    try:
        ipaddress.ip_network(words.strip(), strict=False)
    except ValueError:
        return False
    return True


def _is_listener(words: str) -> bool:
    try:
        host, port = host_and_port(words)
    except ValueError:
        return False
    return _is_address(host) and 0 < port <= 65535


def _addresses(config: ProxyConfig) -> Iterator[Problem]:
    if not _is_address(config.bind_address):
        yield Problem("bindAddress", f"must be an IP address, is {config.bind_address!r}")
    for path, address, port in (
        ("healthzBindAddress", config.healthz_bind_address, HEALTHZ_PORT),
        ("metricsBindAddress", config.metrics_bind_address, METRICS_PORT),
    ):
        if address and not _is_listener(_with_port(address, port)):
            yield Problem(path, f"must be an IP address and a port, such as 0.0.0.0:{port}, is {address!r}")
    yield from _cidrs(config)


def _cidrs(config: ProxyConfig) -> Iterator[Problem]:
    networks = []
    for cidr in filter(None, config.cluster_cidr.split(",")):
        if not _is_network(cidr):
            yield Problem("clusterCIDR", f"must be a CIDR or two, comma separated, such as 10.244.0.0/16, is {cidr!r}")
        else:
            networks.append(ipaddress.ip_network(cidr.strip(), strict=False))
    if len(networks) > 2 or len({n.version for n in networks}) < len(networks):
        yield Problem("clusterCIDR", f"must be one CIDR, or one of IPv4 and one of IPv6, is {config.cluster_cidr!r}")
    if config.node_port_addresses != (PRIMARY,):
        for i, cidr in enumerate(config.node_port_addresses):
            if "/" not in cidr or not _is_network(cidr):
                what = f"must be a CIDR (or {PRIMARY!r} as the only one), is {cidr!r}"
                yield Problem(f"nodePortAddresses[{i}]", what)
    for i, cidr in enumerate(config.ipvs.exclude_cidrs):
        if not _is_network(cidr):
            yield Problem(f"ipvs.excludeCIDRs[{i}]", f"must be a CIDR, is {cidr!r}")


def _modes(config: ProxyConfig) -> Iterator[Problem]:
    if config.mode and config.mode not in AVAILABLE:
        yield Problem("mode", f"{config.mode!r} is not a proxy mode; available: {', '.join(AVAILABLE)}")
    mode, detect = config.detect_local_mode, config.detect_local
    if mode and mode not in DETECT_LOCAL:
        yield Problem("detectLocalMode", f"must be one of {', '.join(DETECT_LOCAL)}, is {mode!r}")
    if mode == "BridgeInterface" and not detect.bridge_interface:
        yield Problem(
            "detectLocal.bridgeInterface", "must name the pods' bridge when detectLocalMode is BridgeInterface"
        )
    if mode == "InterfaceNamePrefix" and not detect.interface_name_prefix:
        what = "must say how pods' interfaces begin when detectLocalMode is InterfaceNamePrefix"
        yield Problem("detectLocal.interfaceNamePrefix", what)
    for path, name in (
        ("detectLocal.bridgeInterface", detect.bridge_interface),
        ("detectLocal.interfaceNamePrefix", detect.interface_name_prefix),
    ):
        if len(name) > 15 or any(c.isspace() or c == "/" for c in name):
            yield Problem(path, f"must be an interface's name: up to 15 characters, no space, no slash; is {name!r}")
    if config.logging.format not in ("text", "json"):
        yield Problem("logging.format", f"must be text or json, is {config.logging.format!r}")


def _periods(config: ProxyConfig) -> Iterator[Problem]:
    for name, least, period in (
        ("iptables", config.iptables.min_sync_period, config.iptables.sync_period),
        ("ipvs", config.ipvs.min_sync_period, config.ipvs.sync_period),
        ("nftables", config.nftables.min_sync_period, config.nftables.sync_period),
    ):
        if period <= 0:
            yield Problem(f"{name}.syncPeriod", f"must be greater than 0, is {period}")
        if least < 0:
            yield Problem(f"{name}.minSyncPeriod", f"must not be less than 0, is {least}")
        if least > period > 0:
            yield Problem(f"{name}.minSyncPeriod", f"must not be greater than syncPeriod ({period}), is {least}")
    if config.config_sync_period <= 0:
        yield Problem("configSyncPeriod", f"must be greater than 0, is {config.config_sync_period}")
    track, ipvs = config.conntrack, config.ipvs
    waits: dict[str, Duration] = {
        "conntrack.tcpEstablishedTimeout": track.tcp_established_timeout,
        "conntrack.tcpCloseWaitTimeout": track.tcp_close_wait_timeout,
        "conntrack.udpTimeout": track.udp_timeout,
        "conntrack.udpStreamTimeout": track.udp_stream_timeout,
        "ipvs.tcpTimeout": ipvs.tcp_timeout,
        "ipvs.tcpFinTimeout": ipvs.tcp_fin_timeout,
        "ipvs.udpTimeout": ipvs.udp_timeout,
        "logging.flushFrequency": config.logging.flush_frequency,
    }
    yield from (Problem(path, f"must not be less than 0, is {wait}") for path, wait in waits.items() if wait < 0)


def _numbers(config: ProxyConfig) -> Iterator[Problem]:
    limits: dict[str, tuple[float, float, float]] = {
        "iptables.masqueradeBit": (config.iptables.masquerade_bit, 0, 31),
        "nftables.masqueradeBit": (config.nftables.masquerade_bit, 0, 31),
        "oomScoreAdj": (config.oom_score_adj, -1000, 1000),
        "conntrack.maxPerCore": (config.conntrack.max_per_core, 0, 2**31 - 1),
        "conntrack.min": (config.conntrack.min, 0, 2**31 - 1),
        "clientConnection.burst": (config.client_connection.burst, 0, 2**31 - 1),
        "clientConnection.qps": (config.client_connection.qps, -math.inf, math.inf),
    }
    for path, (value, least, most) in limits.items():
        if not least <= value <= most:
            yield Problem(path, f"must be {least:g} to {most:g}, is {value:g}")
