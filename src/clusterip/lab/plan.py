"""What a cluster of the laboratory looks like: names, addresses, options. Pure.

The fabric is 192.168.50.0/24: the control plane has .1, node-N has .(10+N) and the pods of 10.244.N.0/24. Clusters side
by side all have these same addresses, each in network namespaces of its own.
"""

import re
from ipaddress import IPv4Network

import msgspec

from clusterip.errors import BadInput

DEFAULT_NAME = "clusterip"
FABRIC = IPv4Network("192.168.50.0/24")
PODS = IPv4Network("10.244.0.0/16")
DOMAIN = "cluster.local"
CONTROL_PLANE, CONTROL_PLANE_IP, API_PORT = "control-plane", "192.168.50.1", 6443
# The two ends of the link that --host-access adds: link-local, so that no network of the machine has them.
HOST_IP, HOST_GATEWAY = "169.254.50.2", "169.254.50.1"
AGENT_PORT, METRICS_PORT, HEALTH_PORT = 10250, 10249, 10256  # on each node
MAX_NODES = 100
MAX_NAME = 12  # characters: with a suffix it must fit into the 15 of a link's name
PROXY_MODES = ("iptables", "nftables", "ebpf")
VARIANTS = ("nft", "legacy")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster. Make it with `checked`."""

    name: str = DEFAULT_NAME
    nodes: int = 3
    proxy_mode: str = "iptables"
    iptables_variant: str = ""  # "": as `iptables` of this machine says
    host_access: bool = False  # the machine's own namespace reaches the Services, through node-1
    service_cidr: str = "10.96.0.0/16"
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
    def api_service_ip(self) -> str:
        return self.service_ip(1)

    @property
    def dns_ip(self) -> str:
        return self.service_ip(10)

    def service_ip(self, number: int) -> str:
        return str(IPv4Network(self.service_cidr)[number])


def prefix(name: str) -> str:
    """Of all network namespaces of the cluster. No name holds a dot, so no cluster's prefix begins another's."""
    return f"{name}."


def host_link(name: str) -> str:
    """The link that --host-access adds to the machine's own namespace."""
    return f"{name}-h"


def node_number(node: str) -> int:
    return int(node.removeprefix("node-"))


def node_ip(node: str) -> str:
    return str(FABRIC[10 + node_number(node)])


def pod_cidr(node: str) -> str:
    return f"10.244.{node_number(node)}.0/24"


def checked(plan: Plan) -> Plan:
    """The same plan if a cluster can be made of it. Raises BadInput."""
    check_name(plan.name)
    if not 1 <= plan.nodes <= MAX_NODES:
        raise BadInput(f"--nodes {plan.nodes}: a cluster has 1 to {MAX_NODES} nodes here")
    if plan.proxy_mode not in PROXY_MODES:
        raise BadInput(f"--proxy-mode {plan.proxy_mode}: unknown", hint=f"one of: {', '.join(PROXY_MODES)}")
    if plan.iptables_variant not in ("", *VARIANTS):
        raise BadInput(f"--iptables-variant {plan.iptables_variant}: unknown", hint=f"one of: {', '.join(VARIANTS)}")
    _check_service_cidr(plan.service_cidr)
    _check_node_ports(plan.node_ports)
    return plan


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        raise BadInput(f"--name {name!r}: lower-case letters, digits and dashes, with no dash at either end")
    if len(name) > MAX_NAME:
        raise BadInput(f"--name {name}: {len(name)} characters, {MAX_NAME} are the most", hint="choose a shorter name")


def _check_service_cidr(option: str) -> None:
    try:
        network = IPv4Network(option)
    except ValueError as error:
        raise BadInput(f"--service-cidr {option}: {error}", hint="write it as 10.96.0.0/16") from error
    if not 12 <= network.prefixlen <= 27:
        raise BadInput(f"--service-cidr {option}: from /12 to /27, so that it holds the DNS server's address, the 10th")
    for taken, what in ((FABRIC, "the nodes"), (PODS, "the pods"), (IPv4Network("127.0.0.0/8"), "loopback")):
        if network.overlaps(taken):
            raise BadInput(f"--service-cidr {option}: overlaps {taken}, which is for {what}", "try 10.96.0.0/16")


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
