"""Traffic policies that leave a node without a backend, as the API's objects alone tell it. Pure."""

from collections.abc import Iterator
from fractions import Fraction

from clusterip.diagnosis.doctor.backends import service_object
from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.model import objects as o
from clusterip.services.resolve import is_served

NAMED = 5  # nodes


def find(known: Known) -> Iterator[Finding]:
    for key, service in known.services.items():
        ready = [
            (e, s)
            for s in known.slices_of.get(key, ())
            for e in s.endpoints or ()
            if e.conditions.ready is not False and e.addresses
        ]
        if not is_served(service) or not ready:
            continue
        on = {e.node_name or "" for e, _ in ready}
        if service.spec.internal_traffic_policy == "Local":
            yield from _internal(known, key, on)
        if service.spec.external_traffic_policy == "Local" and service.spec.type in ("NodePort", "LoadBalancer"):
            yield from _external(known, key, service, on)


def nodes_of(known: Known) -> set[str]:
    """All that are known to be there."""
    return {*known.nodes, *([known.node] if known.node else ()), *(p.spec.node_name for p in known.pods)} - {""}


def _internal(known: Known, key: Key, on: set[str]) -> Iterator[Finding]:
    wanted = {known.node} if known.node else nodes_of(known)
    without = sorted(wanted - on)
    if not without:
        return
    shown = ", ".join(without[:NAMED]) + (f" and {len(without) - NAMED} more" if len(without) > NAMED else "")
    message = f"internalTrafficPolicy: Local, and {shown} {'has' if len(without) == 1 else 'have'} no backend: "
    message += f"clients there are dropped, whatever backends run on {', '.join(sorted(on - {''})) or 'other nodes'}."
    evidence: list[Evidence] = [known.evidence("Service", key, "internalTrafficPolicy: Local")]
    share = Fraction(len(without), len(wanted)) if not known.node else Fraction(1)
    remedy = f"kubectl patch service {key.name} -n {key.namespace} -p "
    remedy += '\'{"spec":{"internalTrafficPolicy":"Cluster"}}\'   # or run a backend on every node (a DaemonSet)'
    yield Finding("itp-local", "E", service_object(key), message, tuple(evidence), share, remedy)


def _external(known: Known, key: Key, service: o.Service, on: set[str]) -> Iterator[Finding]:
    """A node without a backend is what a load balancer's health check is for; a name that no node has is a fault."""
    strange = sorted(name for name in on if name and known.nodes and name not in known.nodes)
    nameless = "" in on and len(on) == 1
    here = known.node and known.node not in on
    if not (strange or nameless or here):
        return
    said = [known.evidence("Service", key, "externalTrafficPolicy: Local")]
    remedy = "start kubelet and kube-proxy with one name for the node: --hostname-override=$(NODE_NAME)"
    if strange:
        message = "externalTrafficPolicy: Local, and the slices name nodes that the API does not have "
        message += f"({', '.join(strange)}): no proxy takes these backends for its own, so every node drops what comes "
        message += "from outside."
        said += [known.evidence("Node", Key("", name), f"node {name}") for name in list(known.nodes)[:NAMED]]
        share: Fraction | None = Fraction(1) if set(strange) == on else None
    elif nameless:
        message = "externalTrafficPolicy: Local, and no endpoint in the slices says its node: no proxy takes them "
        message += "for its own, so every node drops what comes from outside."
        share, remedy = Fraction(1), "write nodeName: to each endpoint of the slices"
    else:
        message = f"externalTrafficPolicy: Local, and {known.node} has no backend: what comes from outside to this "
        message += f"node is dropped. Backends are on {', '.join(sorted(on))}."
        share = Fraction(1)
        remedy = f"kubectl patch service {key.name} -n {key.namespace} -p "
        remedy += '\'{"spec":{"externalTrafficPolicy":"Cluster"}}\'   # or send clients to nodes with a backend'
    yield Finding("no-local-endpoints", "E", service_object(key), message, tuple(said), share, remedy)
