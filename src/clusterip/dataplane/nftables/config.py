"""What the rules depend on besides the service table: one node, one family."""

import ipaddress
from dataclasses import dataclass

from clusterip.dataplane.node import Detector
from clusterip.services.table import Family

TABLE = "clusterip"  # in the families ip and ip6


@dataclass(frozen=True, slots=True)
class Config:
    family: Family = "IPv4"
    node_ip: str = ""  # of the family; "": not known
    detector: Detector | None = None
    masquerade_bit: int = 14  # 0..31
    masquerade_all: bool = False
    node_port_addresses: tuple[str, ...] | None = None  # the node's addresses that serve node ports; None: all it has
    service_cidrs: tuple[str, ...] = ()  # where ClusterIPs come from; the unused ones answer nobody
    drop_invalid: bool = True  # False where net.netfilter.nf_conntrack_tcp_be_liberal is not 0

    @property
    def ipv6(self) -> bool:
        return self.family == "IPv6"

    @property
    def mark(self) -> int:
        """The bit of packets to be masqueraded."""
        return 1 << self.masquerade_bit

    @property
    def served_addresses(self) -> tuple[str, ...] | None:
        """As `node_port_addresses`, without loopback: no node port answers there in this mode."""
        if self.node_port_addresses is None:
            return None
        return tuple(a for a in self.node_port_addresses if not ipaddress.ip_address(a).is_loopback)
