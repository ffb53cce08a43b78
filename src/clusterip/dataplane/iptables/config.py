"""What the rules depend on besides the service table: one node, one family."""

from dataclasses import dataclass

from clusterip.dataplane.node import Detector, FromCIDR, FromInterface, NodeConfig

__all__ = ["LARGE_CLUSTER_ENDPOINTS", "Config", "Detector", "FromCIDR", "FromInterface"]

LARGE_CLUSTER_ENDPOINTS = 1000  # more than these in all: large-cluster mode. Source: kube-proxy, iptables mode


@dataclass(frozen=True, slots=True)
class Config(NodeConfig):
    localhost_node_ports: bool = True  # IPv4 only: node ports on 127.0.0.0/8, which need route_localnet=1
    node_port_addresses: tuple[str, ...] | None = None  # the node's addresses that serve node ports; None: all it has
    random_fully: bool = True  # iptables >= 1.6.2
    nfacct: bool = False  # the counters exist in the kernel
    drop_invalid: bool = True  # False where net.netfilter.nf_conntrack_tcp_be_liberal is not 0
    large_cluster: bool = False  # no comments in the rules of endpoints, stale chains go later

    @property
    def localhost(self) -> bool:
        """Node ports answer on the loopback address."""
        return self.localhost_node_ports and not self.ipv6
