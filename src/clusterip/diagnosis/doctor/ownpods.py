"""Pods of this node that it sends packets away from itself to reach: what its network plugin keeps is gone. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from clusterip.diagnosis.doctor.hostfacts import Leaving, route_to
from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.findings import Evidence, Finding, shortened
from clusterip.diagnosis.question import addresses

NAMED = 3  # pods


def find(known: Known) -> Iterator[Finding]:
    """A pod of the node is behind a link of the node's own making, never behind the one that leads to other nodes."""
    known, outward = _of_its_own(known)
    lost: defaultdict[tuple[bool, str, str], list[str]] = defaultdict(list)
    shown: dict[tuple[bool, str, str], Evidence] = {}
    for pod in known.pods if outward else ():
        if pod.spec.node_name != known.node or pod.spec.host_network or pod.status.ended:
            continue
        for address in addresses(pod):
            six = ":" in address
            way = route_to(known, address)
            if not _has_routes(known, six=six) or (way is not None and way.device not in outward):
                continue
            key = six, way.device if way else "", way.via if way else ""
            lost[key].append(f"{pod.metadata.namespace}/{pod.metadata.name} ({address})")
            shown[key] = way.place if way else Evidence(f"no route to {address}")
    for (_, device, via), pods in lost.items():
        yield _finding(known, pods, Leaving(device, "", Evidence(""), via), shown[_, device, via])


def _of_its_own(known: Known) -> tuple[Known, frozenset[str]]:
    """Of the routes only this node's, and the interfaces that have its addresses, as the API knows them; none where
    they were not given. What belongs to one node stands in one folder."""
    node = known.nodes.get(known.node)
    own = {a.address for a in node.status.addresses} if node else set()
    for source in known.interfaces:
        folder = source.file.rpartition("/")[0]
        outward = frozenset(i.name for i in source.values.interfaces if any(a.address in own for a in i.addresses))
        beside = {other.file for other in known.interfaces if other.file.rpartition("/")[0] == folder}
        if outward and len(beside) == 1:
            routes = tuple(r for r in known.routes if r.file.rpartition("/")[0] == folder)
            return replace(known, routes=routes), outward
    return known, frozenset()


def _has_routes(known: Known, *, six: bool) -> bool:
    routes = (r for source in known.routes for r in source.values.routes if r.table in ("main", "default"))
    return any((":" in r.destination or any(":" in h.gateway for h in r.hops)) == six for r in routes)


def _finding(known: Known, pods: list[str], way: Leaving, place: Evidence) -> Finding:
    named = shortened(pods, NAMED)
    out = f"packets to them leave by {way.device}" + (f" to {way.via}" if way.via else "")
    message = f"By the API {named} {'run' if len(pods) > 1 else 'runs'} on {known.node}, and its routes do not lead to "
    message += f"a link of the pods: {out if way.device else 'there is no route'}. The pods' link has lost its address "
    message += "or its route."
    remedy = "ip addr; ip route   # what lacks; what keeps it is the network plugin: the agent, in the laboratory"
    return Finding("no-route-to-pod", "E", f"node {known.node}", message, (place,), None, remedy)
