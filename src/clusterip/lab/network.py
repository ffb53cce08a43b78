"""The cluster's network: a bridge in a namespace of its own, the control plane and the nodes on it, each in its own.

The machine's own namespace gets nothing, except one link and one route if `host_access` asks for them.
"""

import asyncio
import json
from ipaddress import ip_network

from clusterip.errors import BadInput
from clusterip.kernel import links, netns, sysctl
from clusterip.kernel.run import run
from clusterip.lab.plan import (
    CONTROL_PLANE,
    HOST_LINK,
    RANGES,
    Network,
    Plan,
    family_of,
    host_link,
    prefix,
)
from clusterip.services.table import Family

BRIDGE = "fabric"
HOST_SIDE = "host0"  # the link's end in node-1
EVERYWHERE: dict[Family, str] = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
# Of nodes and of the control plane, before they have links.
SETTINGS: dict[Family, dict[str, str]] = {
    "IPv4": {
        "net.ipv4.ip_forward": "1",
        # Loose: a packet's source must be reachable, by whatever link. Strict would drop what comes back another way.
        "net.ipv4.conf.all.rp_filter": "2",
        "net.ipv4.conf.default.rp_filter": "2",
    },
    "IPv6": {
        # Some machines have it off, and hand that on.
        "net.ipv6.conf.all.disable_ipv6": "0",
        "net.ipv6.conf.default.disable_ipv6": "0",
        "net.ipv6.conf.all.forwarding": "1",
        # Nobody is asked for a second whether he has our address: who has which is known here.
        "net.ipv6.conf.default.accept_dad": "0",
    },
}


def has_ipv6() -> bool:
    """This machine's kernel has IPv6, in namespaces that we make even if not in our own."""
    return sysctl.read("net.ipv6.conf.all.disable_ipv6") is not None


def usual_ip_family() -> str:
    """Both, where the kernel has both."""
    return "dual" if has_ipv6() else "ipv4"


async def build(plan: Plan) -> None:
    """Raises ProgramFailed, NamespaceFailed, BadInput if the machine has a route that overlaps with the Services."""
    if plan.host_access:
        await _refuse_overlap(plan)
    attached = plan.members[1:]
    for member in plan.members:
        netns.create(plan.netns(member))
        for family in plan.families if member in attached else ():
            for name, value in SETTINGS[family].items():
                sysctl.ensure(name, value, plan.netns(member))
    await links.configure(
        plan.netns("fabric"),
        links.up("lo"),
        links.bridge(BRIDGE, plan.control_plane_ips[0]),
        links.up(BRIDGE),
        *(line for member in attached for line in _port(member, plan.netns(member))),
    )
    async with asyncio.TaskGroup() as tasks:
        for member in attached:
            tasks.create_task(links.configure(plan.netns(member), *member_lines(plan, member)))
    if plan.host_access:
        await _let_host_in(plan)


def member_lines(plan: Plan, member: str) -> list[str]:
    """Addresses and routes of a node or of the control plane."""
    addresses = plan.control_plane_ips if member == CONTROL_PLANE else plan.node_ips(member)
    lines = [links.up("lo"), links.up("eth0")]
    for family, address in zip(plan.families, addresses, strict=True):
        lines.append(links.address("eth0", f"{address}/{RANGES[family].fabric.prefixlen}"))
    others = [node for node in plan.node_names if node != member]
    for node in others:
        for cidr, address in zip(plan.pod_cidrs(node), plan.node_ips(node), strict=True):
            lines.append(links.route(cidr, "eth0", address))
    if member == CONTROL_PLANE:
        # The way out ends here, with an ICMP error at once rather than with silence.
        return [*lines, *(f"route add unreachable {EVERYWHERE[family]}" for family in plan.families)]
    # Without a default route a node could not even begin to connect to a ClusterIP: routing comes before rewriting.
    routers = zip(plan.families, plan.control_plane_ips, strict=True)
    return [*lines, *(links.route(EVERYWHERE[family], "eth0", router) for family, router in routers)]


def _port(member: str, namespace: str) -> tuple[str, ...]:
    return (links.veth(member, "eth0", namespace), links.attach(member, BRIDGE), links.up(member))


async def _let_host_in(plan: Plan) -> None:
    node, link, ranges = plan.netns("node-1"), host_link(plan.name), reached_by_host(plan)
    ends = [(HOST_LINK[family_of(services)], services) for services in ranges]
    await links.configure(
        "",
        links.veth(link, HOST_SIDE, node),
        *(links.address(link, _whole(ours)) for (ours, _), _ in ends),
        links.up(link),
    )
    await links.configure(
        node,
        *(links.address(HOST_SIDE, _whole(theirs)) for (_, theirs), _ in ends),
        links.up(HOST_SIDE),
        *(links.route(_whole(ours), HOST_SIDE) for (ours, _), _ in ends),
    )
    await links.configure("", *(links.route(str(services), link, theirs) for (_, theirs), services in ends))


def reached_by_host(plan: Plan) -> tuple[Network, ...]:
    """The ranges of Services of those families that the machine's own namespace has."""
    return tuple(services for services in plan.service_ranges if services.version == 4 or sysctl.has_ipv6())


def _whole(address: str) -> str:
    """The address alone as a network: "/32", "/128"."""
    return str(ip_network(address))


async def _refuse_overlap(plan: Plan) -> None:
    for services in reached_by_host(plan):
        shown = await run(["ip", "-json", f"-{services.version}", "route", "show"])
        for entry in json.loads(shown.stdout or b"[]"):
            there = ip_network(entry["dst"]) if "/" in entry["dst"] else None
            if there is not None and services.overlaps(there):
                raise BadInput(
                    f"--host-access: this machine has a route to {there} already, by {entry.get('dev', 'no link')}",
                    hint="choose other addresses for the Services: --service-cidr 10.97.0.0/16,fd00:97::/112",
                )


def left(name: str) -> tuple[str, ...]:
    """Network namespaces of the cluster `name`, pods' too."""
    return tuple(n for n in netns.names() if n.startswith(prefix(name)))


def remove(name: str) -> tuple[str, ...]:
    """Takes the namespaces away; says which. No error if there are none."""
    gone = left(name)
    for namespace in gone:
        netns.delete(namespace)
    return gone


async def remove_host_link(name: str) -> str:
    """Takes away the link of `--host-access`, and the route with it; says which, "" if there was none."""
    link = host_link(name)
    if (await run(["ip", "link", "show", link], check=False)).returncode != 0:
        return ""
    await run(["ip", "link", "delete", link], check=False)
    return link
