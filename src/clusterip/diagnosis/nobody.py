"""Addresses that nobody answers at, as the API's pods and nodes tell it. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from clusterip.diagnosis.walk.surroundings import within
from clusterip.model.objects import Node, Pod


def by_address(pods: Iterable[Pod], wanted: Collection[str]) -> Mapping[str, Sequence[Pod]] | None:
    """Those that have one of the addresses. None where not all pods are known: of kube-system there are none, or only
    of it. Addresses are compared as the API writes them: there may be 10,000s of pods for one question."""
    found: dict[str, list[Pod]] = {}
    namespaces: set[str] = set()
    for pod in pods:
        namespaces.add(pod.metadata.namespace)
        status = pod.status
        for address in [ip.ip for ip in status.pod_ips] if status.pod_ips else (status.pod_ip,):
            if address in wanted:
                found.setdefault(address, []).append(pod)
    return found if len(namespaces) > 1 and "kube-system" in namespaces else None


def nobody_at(address: str, pods: Mapping[str, Sequence[Pod]] | None, nodes: Iterable[Node]) -> str:
    """Why no pod answers there, in words; "": one may, or nothing tells, for it is no pod's address. `pods`: by
    address, None where not all are known."""
    holders = pods.get(address, ()) if pods is not None else ()
    if pods is None or any(not p.status.ended for p in holders):
        return ""
    for pod in holders:
        return f"pod {pod.metadata.namespace}/{pod.metadata.name}, which had {address}, has ended ({pod.status.phase})"
    for node in nodes:
        for network in node.spec.pod_cidrs or (node.spec.pod_cidr,):
            if within(address, network):
                return f"no pod has {address}, which is in the range of {node.metadata.name}'s pods ({network})"
    return ""
