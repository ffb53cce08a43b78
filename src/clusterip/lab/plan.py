"""What a cluster of the laboratory looks like: names, addresses, options. Pure.

| | control plane | node-N | pods of node-N | Services |
|---|---|---|---|---|
| IPv4 | 192.168.50.1 | 192.168.50.(10+N) | 10.244.N.0/24 | 10.96.0.0/16 |
| IPv6 | fd00:50::1 | fd00:50::(10+N), the same digits | fd00:1:N::/64 | fd00:96::/112 |

Clusters side by side all have these same addresses, each in network namespaces of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import msgspec

from clusterip.errors import BadInput
from clusterip.services.table import Family

Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where a family's addresses come from."""

    fabric: Network  # the control plane's and the nodes'
    pods: Network
    services: Network  # if nothing else is said
    loopback: Network
    sizes: range  # prefix lengths that a range of Services may have


DEFAULT_NAME = "clusterip"
# kind's words for the families that nodes and pods have
IP_FAMILIES: Mapping[str, tuple[Family, ...]] = {"dual": ("IPv4", "IPv6"), "ipv4": ("IPv4",), "ipv6": ("IPv6",)}
RANGES: Mapping[Family, Ranges] = {
    "IPv4": Ranges(
        fabric=IPv4Network("192.168.50.0/24"),
        pods=IPv4Network("10.244.0.0/16"),
        services=IPv4Network("10.96.0.0/16"),
        loopback=IPv4Network("127.0.0.0/8"),
        sizes=range(12, 28),
    ),
    "IPv6": Ranges(
        fabric=IPv6Network("fd00:50::/64"),
        pods=IPv6Network("fd00:1::/32"),
        services=IPv6Network("fd00:96::/112"),
        loopback=IPv6Network("::1/128"),
        sizes=range(64, 124),
    ),
}
DOMAIN = "cluster.local"
CONTROL_PLANE, API_PORT = "control-plane", 6443
# The two ends of the link that --host-access adds, the machine's own first. No network of the machine has them: the
# first two are link-local, the others of a range that is for whoever draws it by lot.
HOST_LINK: Mapping[Family, tuple[str, str]] = {
    "IPv4": ("169.254.50.2", "169.254.50.1"),
    "IPv6": ("fd00:51::2", "fd00:51::1"),
}
AGENT_PORT, METRICS_PORT, HEALTH_PORT = 10250, 10249, 10256  # on each node
MAX_NODES = 100
MAX_NAME = 12  # characters: with a suffix it must fit into the 15 of a link's name
PROXY_MODES = ("iptables", "nftables", "ipvs", "ebpf")
VARIANTS = ("nft", "legacy")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster. Make it with `checked`."""

    name: str = DEFAULT_NAME
    nodes: int = 3
    proxy_mode: str = "iptables"
    iptables_variant: str = ""  # "": as `iptables` of this machine says
    host_access: bool = False  # the machine's own namespace reaches the Services, through node-1
    ip_family: str = "dual"  # of nodes and pods: one of IP_FAMILIES
    service_cidr: str = ""  # one range, or one a family, the first the primary one; "": the usual ones
    node_ports: str = "30000-32767"

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"node-{n}" for n in range(1, self.nodes + 1))

    @property
    def members(self) -> tuple[str, ...]:
        """Everything that has a network namespace, but for pods."""
        return ("fabric", CONTROL_PLANE, *self.node_names)

    def netns(self, member: str) -> str:
        return f"{prefix(self.name)}{member}"

    @property
    def service_ranges(self) -> tuple[Network, ...]:
        """The primary one first."""
        if not self.service_cidr:
            return tuple(RANGES[family].services for family in IP_FAMILIES[self.ip_family])
        return tuple(ip_network(text) for text in self.service_cidr.split(","))

    @property
    def families(self) -> tuple[Family, ...]:
        """Of nodes and pods. The first is that of a Service which asks for none."""
        first = family_of(self.service_ranges[0])
        return tuple(sorted(IP_FAMILIES[self.ip_family], key=lambda family: family != first))

    @property
    def control_plane_ips(self) -> tuple[str, ...]:
        return tuple(str(RANGES[family].fabric[1]) for family in self.families)

    def node_ips(self, node: str) -> tuple[str, ...]:
        return tuple(node_ip(node, family) for family in self.families)

    def pod_cidrs(self, node: str) -> tuple[str, ...]:
        return tuple(pod_cidr(node, family) for family in self.families)

    @property
    def api_service_ip(self) -> str:
        """One: the Service `kubernetes` is SingleStack, as everywhere."""
        return str(self.service_ranges[0][1])

    @property
    def dns_ips(self) -> tuple[str, ...]:
        return tuple(str(network[10]) for network in self.service_ranges)


def prefix(name: str) -> str:
    """Of all network namespaces of the cluster. No name holds a dot, so no cluster's prefix begins another's."""
    return f"{name}."


def host_link(name: str) -> str:
    """The link that --host-access adds to the machine's own namespace."""
    return f"{name}-h"


def node_number(node: str) -> int:
    return int(node.removeprefix("node-"))


def family_of(network: Network) -> Family:
    return "IPv4" if network.version == 4 else "IPv6"


def node_ip(node: str, family: Family) -> str:
    number = 10 + node_number(node)
    return f"192.168.50.{number}" if family == "IPv4" else f"fd00:50::{number}"


def pod_cidr(node: str, family: Family) -> str:
    number = node_number(node)
    return f"10.244.{number}.0/24" if family == "IPv4" else f"fd00:1:{number}::/64"


def checked(plan: Plan) -> Plan:
    """The same plan, with its ranges of Services said, if a cluster can be made of it. Raises BadInput."""
    check_name(plan.name)
    if not 1 <= plan.nodes <= MAX_NODES:
        raise BadInput(f"--nodes {plan.nodes}: a cluster has 1 to {MAX_NODES} nodes here")
    if plan.proxy_mode not in PROXY_MODES:
        raise BadInput(f"--proxy-mode {plan.proxy_mode}: unknown", hint=f"one of: {', '.join(PROXY_MODES)}")
    if plan.iptables_variant not in ("", *VARIANTS):
        raise BadInput(f"--iptables-variant {plan.iptables_variant}: unknown", hint=f"one of: {', '.join(VARIANTS)}")
    if plan.ip_family not in IP_FAMILIES:
        raise BadInput(f"--ip-family {plan.ip_family}: unknown", hint=f"one of: {', '.join(IP_FAMILIES)}")
    if plan.service_cidr:
        _check_service_cidr(plan.service_cidr, plan.ip_family)
    _check_node_ports(plan.node_ports)
    return msgspec.structs.replace(plan, service_cidr=",".join(map(str, plan.service_ranges)))


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        raise BadInput(f"--name {name!r}: lower-case letters, digits and dashes, with no dash at either end")
    if len(name) > MAX_NAME:
        raise BadInput(f"--name {name}: {len(name)} characters, {MAX_NAME} are the most", hint="choose a shorter name")


def _check_service_cidr(option: str, ip_family: str) -> None:
    families = IP_FAMILIES[ip_family]
    usual = ",".join(str(RANGES[family].services) for family in families)
    try:
        networks = [ip_network(text) for text in option.split(",")]
    except ValueError as error:
        raise BadInput(f"--service-cidr {option}: {error}", hint=f"write it as {usual}") from error
    found = [family_of(network) for network in networks]
    if len(set(found)) != len(found):
        raise BadInput(f"--service-cidr {option}: one range, or two of different families", hint=f"as {usual}")
    for network, family in zip(networks, found, strict=True):
        if family not in families:
            said = f"--service-cidr {network}: nodes have no {family} address with --ip-family {ip_family}"
            raise BadInput(said, hint=f"write it as {usual}, or use --ip-family dual")
        _check_range(network, RANGES[family])


def _check_range(network: Network, ranges: Ranges) -> None:
    least, most = ranges.sizes[0], ranges.sizes[-1]
    if network.prefixlen not in ranges.sizes:
        what = f"from /{least} to /{most}, so that it holds the DNS server's address, the 10th"
        raise BadInput(f"--service-cidr {network}: {what}", hint=f"try {ranges.services}")
    for taken, what in ((ranges.fabric, "the nodes"), (ranges.pods, "the pods"), (ranges.loopback, "loopback")):
        if taken.overlaps(network):
            raise BadInput(f"--service-cidr {network}: overlaps {taken}, which is for {what}", f"try {ranges.services}")
    if any(ip_address(end) in network for end in HOST_LINK[family_of(network)]):
        raise BadInput(f"--service-cidr {network}: holds the addresses of --host-access", f"try {ranges.services}")


def _check_node_ports(option: str) -> None:
    match = re.fullmatch(r"(\d+)-(\d+)", option)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last < 65536:
        raise BadInput(f"--node-port-range {option}: not a range of ports", hint="write it as 30000-32767")
    own = {API_PORT: "the API server", AGENT_PORT: "the node agent", METRICS_PORT: "the proxy's metrics",
           HEALTH_PORT: "the proxy's health"}  # fmt: skip
    for port, what in own.items():
        if first <= port <= last:
            raise BadInput(f"--node-port-range {option}: holds {port}, which is {what}", hint="try 30000-32767")
