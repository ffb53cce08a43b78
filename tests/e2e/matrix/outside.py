"""A client that is neither node nor pod: a namespace on the fabric, whose one address nodes have a route to."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from tests.e2e.matrix.drawing import BALANCERS, EXTERNAL
from tests.e2e.matrix.world import Node

from clusterip.kernel import links, netns, sysctl
from clusterip.lab.network import BRIDGE
from clusterip.lab.plan import CONTROL_PLANE, Plan
from clusterip.services.table import Family

ADDRESSES: Mapping[Family, str] = {"IPv4": "203.0.113.5", "IPv6": "2001:db8::5"}
BITS: Mapping[Family, int] = {"IPv4": 32, "IPv6": 128}
LINK = "outside"
# Linux sends one client about six ICMP refusals and then one a second, and all of them together some thousand a second;
# in a matrix all are asked for at once.
UNLIMITED = {
    "net.ipv4.icmp_ratelimit": "0",
    "net.ipv6.icmp.ratelimit": "0",
    "net.ipv4.icmp_msgs_per_sec": "1000000",
    "net.ipv4.icmp_msgs_burst": "1000000",
}


def entrances(service_cidrs: Sequence[str], nodes: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    """Through which node it sends what: to ClusterIPs through one, to external addresses through others."""
    yield from ((cidr, nodes[0]) for cidr in service_cidrs)
    for place, node in ((EXTERNAL, nodes[1]), (BALANCERS, nodes[2])):
        for family in node.ips:
            length = BITS[family] * 3 // 4
            yield str(ipaddress.ip_network(f"{place[family].format(0)}/{length}", strict=False)), node


async def enter(plan: Plan, nodes: Sequence[Node], service_cidrs: Sequence[str]) -> str:
    """The namespace's name. It begins as all of the cluster do, so `clusterip down` takes it away as well."""
    name, families = plan.netns(LINK), tuple(nodes[0].ips)
    netns.create(name)
    if "IPv6" in families:
        sysctl.ensure("net.ipv6.conf.all.disable_ipv6", "0", name)
    for version in ("ipv4", "ipv6")[: len(families)]:
        # A node that knows nothing of a frontend says who is nearer: believed, that would hold for the next round, too.
        for scope in ("all", "default"):
            sysctl.ensure(f"net.{version}.conf.{scope}.accept_redirects", "0", name)
    port = (links.veth(LINK, "eth0", name), links.attach(LINK, BRIDGE), links.up(LINK))
    await links.configure(plan.netns("fabric"), *port)
    lines = [links.up("lo"), links.up("eth0")]
    for family in families:
        lines.append(links.address("eth0", f"{ADDRESSES[family]}/{BITS[family]}"))
        for node in nodes:
            lines.append(links.route(f"{node.ips[family]}/{BITS[family]}", "eth0"))
            lines.append(links.route(f"{node.gateways[family]}/{BITS[family]}", "eth0", node.ips[family]))
        own = [(to, node) for to, node in entrances(service_cidrs, nodes) if (":" in to) == (family == "IPv6")]
        lines += [links.route(to, "eth0", node.ips[family]) for to, node in own]
    await links.configure(name, *lines)
    back = [links.route(f"{ADDRESSES[family]}/{BITS[family]}", "eth0") for family in families]
    for member in (CONTROL_PLANE, *plan.node_names):
        await links.configure(plan.netns(member), *back)
        for setting, value in UNLIMITED.items():
            if sysctl.read(setting, plan.netns(member)) is not None:
                sysctl.ensure(setting, value, plan.netns(member))
    return name
