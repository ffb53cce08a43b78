"""The node that rules are for, as all dataplanes see it: how pods' packets are told from others', and its addresses."""

from dataclasses import dataclass
from typing import TypeAlias

from clusterip.services.table import Family


@dataclass(frozen=True, slots=True)
class FromCIDR:
    """A packet is a pod's if its source lies in `cidr` (modes ClusterCIDR and NodeCIDR)."""

    cidr: str  # canonical, of the family


@dataclass(frozen=True, slots=True)
class FromInterface:
    """A packet is a pod's if it came in by `pattern` (BridgeInterface: a name; InterfaceNamePrefix: prefix and "+")."""

    pattern: str


Detector: TypeAlias = FromCIDR | FromInterface  # tells a pod's packets from others'


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What the rules of every dataplane depend on besides the service table: one node, one family."""

    family: Family = "IPv4"
    node_ip: str = ""  # of the family; "": not known
    detector: Detector | None = None
    masquerade_bit: int = 14  # 0..31
    masquerade_all: bool = False

    @property
    def ipv6(self) -> bool:
        return self.family == "IPv6"

    @property
    def mark(self) -> int:
        """The bit of packets to be masqueraded."""
        return 1 << self.masquerade_bit

    @property
    def mark_text(self) -> str:
        """The same as iptables writes it: "0x4000"."""
        return f"{self.mark:#x}"

    @property
    def host_bits(self) -> int:
        """Prefix length of one address."""
        return 128 if self.ipv6 else 32


@dataclass(frozen=True, slots=True)
class Host:
    """The node the rules are on."""

    addresses: frozenset[str]  # canonical; the loopback's range and ::1 count as well
    pod_interface: str = "cip0"  # pods' packets come in by it
    uplink: str = "eth0"  # others' packets come in by it
