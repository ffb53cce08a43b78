"""Who is who on every page: the addresses of pods, nodes and clients in both families."""

import ipaddress
from dataclasses import dataclass

from clusterip.services.table import Family

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
POD_RANGES: dict[Family, str] = {"IPv4": "10.244.0.0/16", "IPv6": "fd00:1::/32"}  # of the cluster
SERVICE_RANGES: dict[Family, str] = {"IPv4": "10.96.0.0/16", "IPv6": "fd00:96::/112"}
BRIDGE = "cip0"  # pods of this node come in by it
LOOPBACK: dict[Family, str] = {"IPv4": "127.0.0.1", "IPv6": "::1"}


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    four: str
    six: str
    node: str = ""  # whose pod it is, or which node; "": none

    def address(self, family: Family) -> str:
        return self.four if family == "IPv4" else self.six


HERE = "node-1"  # the node whose rules are looked at
MEMBERS = {
    m.name: m
    for m in (
        Member("a", "10.244.1.2", "fd00:1:1::2", HERE),
        Member("b", "10.244.1.3", "fd00:1:1::3", HERE),
        Member("c", "10.244.1.4", "fd00:1:1::4", HERE),
        Member("x", "10.244.2.2", "fd00:1:2::2", "node-2"),
        Member("z", "10.244.3.2", "fd00:1:3::2", "node-3"),
        Member("node", "192.168.50.11", "fd00:50::11", HERE),
        Member("node2", "192.168.50.12", "fd00:50::12", "node-2"),
        Member("outside", "203.0.113.9", "2001:db8::9"),
    )
}
NODE, GATEWAY = MEMBERS["node"], Member("gateway", "10.244.1.1", "fd00:1:1::1", HERE)
LOCAL_PODS, FAR_PODS = ("a", "b", "c"), ("x", "z")
PLACES = {**MEMBERS, "gateway": GATEWAY, "localhost": Member("localhost", "127.0.0.1", "::1", HERE)}  # to send to


def family_of(address: str) -> Family:
    return "IPv6" if ":" in address else "IPv4"


def node_addresses(family: Family) -> frozenset[str]:
    """Those that the node has, besides loopback."""
    return frozenset({NODE.address(family), GATEWAY.address(family)})


def name_of(address: str) -> str:
    """The member that has the address, or the address itself."""
    return next((m.name for m in MEMBERS.values() if address in (m.four, m.six)), address)


def is_nodes(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback or address in node_addresses(family_of(address))
