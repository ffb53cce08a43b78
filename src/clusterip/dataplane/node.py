"""The node that rules are for, as all dataplanes see it: how pods' packets are told from others', and its addresses."""

from dataclasses import dataclass
from typing import TypeAlias


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
class Host:
    """The node the rules are on."""

    addresses: frozenset[str]  # canonical; the loopback's range and ::1 count as well
    pod_interface: str = "cip0"  # pods' packets come in by it
    uplink: str = "eth0"  # others' packets come in by it
