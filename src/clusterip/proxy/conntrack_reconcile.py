"""UDP flows that go on to a backend which is gone: the kernel keeps sending them there while packets come.

Source: kube-proxy 1.34 and later, which compares address and port.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from clusterip.kernel import conntrack
from clusterip.kernel.conntrack import Entry as Flow
from clusterip.services.table import Entry, Family

_UDP = 17

Backends = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where UDP flows may go: by address and port, and by node port, of Services that have a serving backend."""

    frontends: dict[tuple[str, int], Backends]
    node_ports: dict[int, Backends]

    def allows(self, flow: Flow) -> bool:
        """True unless the flow was sent to a Service of ours and is answered by no backend that serves it."""
        destination = (flow.original.destination, flow.original.destination_port)
        backends = self.frontends.get(destination) or self.node_ports.get(destination[1])
        return backends is None or (flow.reply.source, flow.reply.source_port) in backends


def wanted(entries: Iterable[Entry]) -> Wanted:
    """Pure. An entry without a serving backend says nothing about its flows: they are left alone."""
    frontends: dict[tuple[str, int], Backends] = {}
    node_ports: dict[int, Backends] = {}
    for entry in entries:
        if entry.protocol != "UDP" or not entry.serving:
            continue
        backends = frozenset((b.address, b.port) for b in entry.serving)
        for address in (entry.cluster_ip, *entry.external_ips, *entry.load_balancer_ips):
            frontends[address, entry.port] = backends
        if entry.node_port:
            node_ports[entry.node_port] = backends
    return Wanted(frontends, node_ports)


def plan(entries: Iterable[Entry], flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """The flows to end. Pure."""
    rules = wanted(entries)
    if not rules.frontends:
        return ()
    return tuple(flow for flow in flows if flow.protocol == _UDP and not rules.allows(flow))


def reconcile(family: Family, entries: Iterable[Entry], netns: str = "") -> int:
    """End stale flows; how many were ended. Blocking."""
    stale = plan(entries, conntrack.entries(family, "UDP", netns))
    return conntrack.delete(stale, netns) if stale else 0
