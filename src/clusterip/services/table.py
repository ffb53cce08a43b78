"""The service table's values.

One `Entry` is one port of one Service in one address family: the addresses it is reached by (frontends) and the
backends that count on this node, already decided. Addresses are canonical text. Backends are sorted by their text,
as kube-proxy orders them; addresses and ranges keep the order of the Service, each once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

Family: TypeAlias = Literal["IPv4", "IPv6"]
Protocol: TypeAlias = Literal["TCP", "UDP", "SCTP"]

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
PROTOCOL_NUMBERS: Mapping[Protocol, int] = {"TCP": 6, "UDP": 17, "SCTP": 132}  # of IP


class PortName(NamedTuple):
    """A Service port's full name. Text form: "ns/name:port", or "ns/name" if the port has no name."""

    namespace: str
    service: str
    port: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.service}" + (f":{self.port}" if self.port else "")


class EntryKey(NamedTuple):
    """What one entry is known by: changes are folded, kept and programmed by this key."""

    name: PortName
    family: Family
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.name}/{self.protocol.lower()} ({self.family})"


class Backend(NamedTuple):
    address: str  # canonical
    port: int  # 1..65535
    local: bool = False  # on this node

    def __str__(self) -> str:
        """ "10.244.0.3:80", "[fd00::3]:80"."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class FrontendKind(Enum):
    CLUSTER_IP = "clusterIP"
    EXTERNAL_IP = "externalIP"
    LOAD_BALANCER = "loadBalancer"
    NODE_PORT = "nodePort"

    @property
    def external(self) -> bool:
        """Follows externalTrafficPolicy; a ClusterIP follows internalTrafficPolicy."""
        return self is not FrontendKind.CLUSTER_IP


class Frontend(NamedTuple):
    """An address, port and protocol we answer for. A node port has address "": every node address chosen for it."""

    kind: FrontendKind
    address: str
    port: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """What this node does for one Service port in one family."""

    name: PortName
    family: Family
    protocol: Protocol
    port: int  # of the Service, 1..65535
    cluster_ip: str
    node_port: int = 0  # 0: none
    external_ips: tuple[str, ...] = ()
    load_balancer_ips: tuple[str, ...] = ()  # those with ipMode VIP
    source_ranges: tuple[str, ...] = ()  # CIDRs allowed to reach load_balancer_ips; (): everybody
    internal_local: bool = False  # internalTrafficPolicy: Local
    external_local: bool = False  # externalTrafficPolicy: Local
    affinity_seconds: int = 0  # ClientIP affinity's timeout; 0: none
    health_check_node_port: int = 0  # 0: none
    cluster: tuple[Backend, ...] = ()  # usable under the Cluster policy; sorted by text
    local: tuple[Backend, ...] = ()  # usable under the Local policy; sorted by text
    has_backends: bool = False  # some node has a usable backend: an empty policy set then drops, not rejects
    local_ready: tuple[str, ...] = ()  # addresses ready on this node: what the health check node port counts
    serving: tuple[Backend, ...] = ()  # UDP only, sorted by text: a flow to any other backend is stale
    known: int = 0  # endpoints in the slices, whatever their conditions: the measure of a large cluster

    @property
    def key(self) -> EntryKey:
        return EntryKey(self.name, self.family, self.protocol)

    @property
    def external(self) -> bool:
        """True if it is reached by anything besides the ClusterIP."""
        return bool(self.node_port or self.external_ips or self.load_balancer_ips)

    @property
    def uses_cluster(self) -> bool:
        return not self.internal_local or self.external

    @property
    def uses_local(self) -> bool:
        return self.internal_local or (self.external_local and self.external)

    def frontends(self) -> tuple[Frontend, ...]:
        """Every address this port is reached by, ClusterIP first."""
        kinds = (
            (FrontendKind.CLUSTER_IP, (self.cluster_ip,)),
            (FrontendKind.EXTERNAL_IP, self.external_ips),
            (FrontendKind.LOAD_BALANCER, self.load_balancer_ips),
        )
        named = [Frontend(k, a, self.port, self.protocol) for k, addresses in kinds for a in addresses]
        if self.node_port:
            named.append(Frontend(FrontendKind.NODE_PORT, "", self.node_port, self.protocol))
        return tuple(named)
