"""What decides, besides the service table, what the maps hold."""

from dataclasses import dataclass

from clusterip.services.table import Family

LOOPBACK: dict[Family, str] = {"IPv4": "127.0.0.1", "IPv6": "::1"}


@dataclass(frozen=True, slots=True)
class Config:
    """One family of one node."""

    family: Family = "IPv4"
    node_port_addresses: tuple[str, ...] = ()  # of the node, that answer on node ports; canonical
    localhost_node_ports: bool = True  # and its loopback address, for the node's own processes alone
