"""A node with a client pod and a backend pod, each a network namespace; packets between the two are routed by the node.

client 10.244.1.2 -- 10.244.1.1 node 10.244.2.1 -- 10.244.2.2 backend
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from clusterip.kernel import links, netns, sysctl
from entries import NODE_IP

CLIENT, BACKEND = "10.244.1.2", "10.244.2.2"


@dataclass(frozen=True, slots=True)
class Pods:
    """Names of the namespaces."""

    node: str
    client: str
    backend: str


@asynccontextmanager
async def pods(tag: str) -> AsyncIterator[Pods]:
    """`tag`: what the namespaces' names begin with."""
    made = Pods(f"{tag}-n", f"{tag}-c", f"{tag}-b")
    with ExitStack() as stack:
        for name in (made.node, made.client, made.backend):
            netns.create(name)
            stack.callback(netns.delete, name)
        sysctl.ensure("net.ipv4.ip_forward", "1", made.node)
        await links.configure(made.node, links.up("lo"), links.address("lo", f"{NODE_IP}/32"))
        for pod, port, address in ((made.client, "c0", CLIENT), (made.backend, "b0", BACKEND)):
            gateway = address[:-1] + "1"
            link = (links.veth(port, "eth0", pod), links.address(port, f"{gateway}/24"), links.up(port))
            await links.configure(made.node, *link)
            own = (links.up("lo"), links.up("eth0"), links.address("eth0", f"{address}/24"))
            await links.configure(pod, *own, links.route("default", "eth0", gateway))
        yield made
