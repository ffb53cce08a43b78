"""What the virtual servers, sets and chains depend on besides the service table: one node, one family."""

import ipaddress
from dataclasses import dataclass

from clusterip.dataplane.node import Detector
from clusterip.services.table import Family

DEVICE = "kube-ipvs0"  # the dummy that holds the addresses of Services, so that their packets are for this node


@dataclass(frozen=True, slots=True)
class Config:
    family: Family = "IPv4"
    node_ip: str = ""  # of the family; "": not known
    detector: Detector | None = None
    masquerade_bit: int = 14  # 0..31
    masquerade_all: bool = False
    scheduler: str = "rr"
    node_addresses: tuple[str, ...] = ()  # the node's addresses that serve node ports
    host_addresses: frozenset[str] = frozenset()  # on interfaces other than DEVICE: never bound to it as well
    exclude_cidrs: tuple[str, ...] = ()  # virtual servers in these are somebody else's
    random_fully: bool = True  # iptables >= 1.6.2

    @property
    def ipv6(self) -> bool:
        return self.family == "IPv6"

    @property
    def mark(self) -> str:
        """The bit of packets to be masqueraded, as iptables writes it: "0x4000"."""
        return f"{1 << self.masquerade_bit:#x}"

    @property
    def host_bits(self) -> int:
        """Prefix length of one address."""
        return 128 if self.ipv6 else 32

    @property
    def served_addresses(self) -> tuple[str, ...]:
        """As `node_addresses`, without loopback: no node port answers there in this mode."""
        return tuple(a for a in self.node_addresses if not ipaddress.ip_address(a).is_loopback)
