"""The cluster's network: a bridge in a namespace of its own, the control plane and the nodes on it, each in its own.

The machine's own namespace gets nothing, except one link and one route if `host_access` asks for them.
"""

import asyncio
import json
from ipaddress import IPv4Network

from clusterip.errors import BadInput
from clusterip.kernel import links, netns, sysctl
from clusterip.kernel.run import run
from clusterip.lab.plan import (
    CONTROL_PLANE,
    CONTROL_PLANE_IP,
    HOST_GATEWAY,
    HOST_IP,
    Plan,
    host_link,
    node_ip,
    pod_cidr,
    prefix,
)

BRIDGE = "fabric"
HOST_SIDE = "host0"  # the link's end in node-1
NODE_SETTINGS = {
    "net.ipv4.ip_forward": "1",
    # Loose: a packet's source must be reachable, by whatever link. Strict would drop what comes back another way.
    "net.ipv4.conf.all.rp_filter": "2",
    "net.ipv4.conf.default.rp_filter": "2",
}


async def build(plan: Plan) -> None:
    """Raises ProgramFailed, NamespaceFailed, BadInput if the machine has a route that overlaps with the Services."""
    if plan.host_access:
        await _refuse_overlap(plan)
    for member in plan.members:
        netns.create(plan.netns(member))
    fabric = plan.netns("fabric")
    attached = plan.members[1:]
    await links.configure(
        fabric,
        links.up("lo"),
        links.bridge(BRIDGE, CONTROL_PLANE_IP),
        links.up(BRIDGE),
        *(line for member in attached for line in _port(member, plan.netns(member))),
    )
    for member in attached:
        for name, value in NODE_SETTINGS.items():
            sysctl.ensure(name, value, plan.netns(member))
    async with asyncio.TaskGroup() as tasks:
        for member in attached:
            tasks.create_task(links.configure(plan.netns(member), *member_lines(plan, member)))
    if plan.host_access:
        await _let_host_in(plan)


def member_lines(plan: Plan, member: str) -> list[str]:
    """Addresses and routes of a node or of the control plane."""
    address = CONTROL_PLANE_IP if member == CONTROL_PLANE else node_ip(member)
    lines = [links.up("lo"), links.address("eth0", f"{address}/24"), links.up("eth0")]
    lines += [links.route(pod_cidr(node), "eth0", node_ip(node)) for node in plan.node_names if node != member]
    if member == CONTROL_PLANE:
        # The way out ends here, with an ICMP error at once rather than with silence.
        return [*lines, "route add unreachable default"]
    # Without a default route a node could not even begin to connect to a ClusterIP: routing comes before rewriting.
    return [*lines, links.route("default", "eth0", CONTROL_PLANE_IP)]


def _port(member: str, namespace: str) -> tuple[str, ...]:
    return (links.veth(member, "eth0", namespace), links.attach(member, BRIDGE), links.up(member))


async def _let_host_in(plan: Plan) -> None:
    node = plan.netns("node-1")
    await links.configure(
        "",
        links.veth(host_link(plan.name), HOST_SIDE, node),
        links.address(host_link(plan.name), f"{HOST_IP}/32"),
        links.up(host_link(plan.name)),
    )
    await links.configure(
        node,
        links.address(HOST_SIDE, f"{HOST_GATEWAY}/32"),
        links.up(HOST_SIDE),
        links.route(f"{HOST_IP}/32", HOST_SIDE),
    )
    await links.configure("", links.route(plan.service_cidr, host_link(plan.name), HOST_GATEWAY))


async def _refuse_overlap(plan: Plan) -> None:
    services = IPv4Network(plan.service_cidr)
    shown = await run(["ip", "-json", "-4", "route", "show"])
    for entry in json.loads(shown.stdout or b"[]"):
        if "/" in entry["dst"] and services.overlaps(IPv4Network(entry["dst"])):
            raise BadInput(
                f"--host-access: this machine has a route to {entry['dst']} already, by {entry.get('dev', 'no link')}",
                hint="choose other addresses for the Services: --service-cidr 10.97.0.0/16",
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
