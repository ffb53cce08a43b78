"""What the rules depend on besides the service table: one node, one family."""

import ipaddress
from dataclasses import dataclass

from clusterip.dataplane.node import NodeConfig

TABLE = "clusterip"  # in the families ip and ip6


@dataclass(frozen=True, slots=True)
class Config(NodeConfig):
    node_port_addresses: tuple[str, ...] | None = None  # the node's addresses that serve node ports; None: all it has
    service_cidrs: tuple[str, ...] = ()  # where ClusterIPs come from; the unused ones answer nobody
    drop_invalid: bool = True  # False where net.netfilter.nf_conntrack_tcp_be_liberal is not 0

    @property
    def served_addresses(self) -> tuple[str, ...] | None:
        """As `node_port_addresses`, without loopback: no node port answers there in this mode."""
        if self.node_port_addresses is None:
            return None
        return tuple(a for a in self.node_port_addresses if not ipaddress.ip_address(a).is_loopback)
