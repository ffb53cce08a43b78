"""Kernel settings before the first rule: connection tracking and loopback routing.

A setting that belongs to the machine, and so cannot be changed from a network namespace or container, is logged; one
that is ours and is refused ends the start. Source: kube-proxy 1.36.
"""

import logging
import os
from pathlib import Path

from clusterip.kernel import sysctl
from clusterip.kernel.sysctl import SettingRefused
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.rules import conntrack_max

log = logging.getLogger(__name__)

CONNTRACK = "net.netfilter.nf_conntrack_"
ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet"
BE_LIBERAL = f"{CONNTRACK}tcp_be_liberal"
_MACHINES = frozenset({f"{CONNTRACK}max"})  # the one that is the machine's alone; the table's size is, too


def settings(config: ProxyConfig, cpus: int) -> dict[str, str]:
    """Name and value of each setting that is wanted. Pure."""
    track = config.conntrack
    wanted = {
        "max": conntrack_max(config, cpus),
        "tcp_timeout_established": int(track.tcp_established_timeout),
        "tcp_timeout_close_wait": int(track.tcp_close_wait_timeout),
        "tcp_be_liberal": int(track.tcp_be_liberal),
        "udp_timeout": int(track.udp_timeout),
        "udp_timeout_stream": int(track.udp_stream_timeout),
    }
    return {f"{CONNTRACK}{name}": str(value) for name, value in wanted.items() if value > 0}


def prepare_conntrack(config: ProxyConfig, netns: str = "") -> None:
    """Blocking. Raises SettingRefused for a setting that is this namespace's own."""
    wanted = settings(config, os.cpu_count() or 1)
    buckets = int(wanted.get(f"{CONNTRACK}max", "0")) // 4
    for name, value in wanted.items():
        try:
            if sysctl.ensure(name, value, netns):
                log.info("proxy.sysctl.set name=%s value=%s", name, value)
        except SettingRefused as error:
            if not (error.not_ours and name in _MACHINES):
                raise
            log.warning("proxy.sysctl.left name=%s reason=%r", name, error.message)
            buckets = 0
    if buckets:
        try:
            sysctl.grow_conntrack_hash(buckets)
        except SettingRefused as error:
            if not error.not_ours:
                raise
            log.warning("proxy.conntrack.small reason=%r", error.message)


def conntrack_is_liberal(netns: str = "") -> bool:
    """The kernel takes out-of-window packets for valid, so invalid ones need no rule of their own."""
    return sysctl.read(BE_LIBERAL, netns) not in (None, "0")


def route_localnet(netns: str = "") -> None:
    """Let packets to node ports on 127.0.0.1 leave for a backend. Raises SettingRefused."""
    if sysctl.ensure(ROUTE_LOCALNET, "1", netns):
        log.info("proxy.sysctl.set name=%s value=1", ROUTE_LOCALNET)


def spare_from_oom(score: int) -> None:
    """What the kernel weighs us with when memory runs out. Refusal is logged: it is no reason not to serve."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(score))
    except OSError as error:
        log.info("proxy.oom_score.left wanted=%s reason=%r", score, error.strerror)
