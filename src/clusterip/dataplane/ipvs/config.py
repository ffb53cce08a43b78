"""What the virtual servers, sets and chains depend on besides the service table: one node, one family."""

import ipaddress
from dataclasses import dataclass

from clusterip.dataplane.node import NodeConfig

DEVICE = "kube-ipvs0"  # the dummy that holds the addresses of Services, so that their packets are for this node


@dataclass(frozen=True, slots=True)
class Config(NodeConfig):
    scheduler: str = "rr"
    node_addresses: tuple[str, ...] = ()  # the node's addresses that serve node ports
    host_addresses: frozenset[str] = frozenset()  # on interfaces other than DEVICE: never bound to it as well
    exclude_cidrs: tuple[str, ...] = ()  # virtual servers in these are somebody else's
    random_fully: bool = True  # iptables >= 1.6.2

    @property
    def served_addresses(self) -> tuple[str, ...]:
        """As `node_addresses`, without loopback: no node port answers there in this mode."""
        return tuple(a for a in self.node_addresses if not ipaddress.ip_address(a).is_loopback)
