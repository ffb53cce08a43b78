"""Addresses that nobody answers at, as the API's pods and nodes tell it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from clusterip.diagnosis.question import addresses
from clusterip.diagnosis.walk.surroundings import within
from clusterip.model.objects import Node, Pod

_OVER = ("Succeeded", "Failed")


def by_address(pods: Iterable[Pod]) -> Mapping[str, Sequence[Pod]]:
    """{} where not all pods are known: of kube-system there are none, or only of it."""
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    namespaces: set[str] = set()
    for pod in pods:
        namespaces.add(pod.metadata.namespace)
        for address in addresses(pod):
            found[address].append(pod)
    return found if len(namespaces) > 1 and "kube-system" in namespaces else {}


def nobody_at(address: str, pods: Mapping[str, Sequence[Pod]], nodes: Iterable[Node]) -> str:
    """Why no pod answers there, in words; "": one may, or nothing tells, for it is no pod's address. `pods`: by
    address, {} where not all are known."""
    holders = pods.get(address, ())
    if not pods or any(p.status.phase not in _OVER for p in holders):
        return ""
    for pod in holders:
        return f"pod {pod.metadata.namespace}/{pod.metadata.name}, which had {address}, has ended ({pod.status.phase})"
    for node in nodes:
        for network in node.spec.pod_cidrs or (node.spec.pod_cidr,):
            if within(address, network):
                return f"no pod has {address}, which is in the range of {node.metadata.name}'s pods ({network})"
    return ""
