"""ReplicaSets: as many pods as asked for, of the template's kind.

Source: Kubernetes docs, "ReplicaSet".
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from clusterip.client.view import Change, Ref
from clusterip.controllers.endpointslice.wanted import is_ready
from clusterip.controllers.lookup import Lookup, carries
from clusterip.controllers.ownership import claim, controller_of, reference
from clusterip.controllers.times import seconds
from clusterip.controllers.writes import NOTHING, Create, Delete, Key, Patch, Plan, Write
from clusterip.model.objects import Pod, ReplicaSet, ReplicaSetStatus
from clusterip.model.resources import PODS, REPLICA_SETS
from clusterip.model.selectors import matches_selector
from clusterip.model.status import Object

AT_ONCE = 500  # pods created or deleted in one round
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class ReplicaSets:
    """A key is a ReplicaSet."""

    name = "replicaset"

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case ReplicaSet():
                return (Key(ref.namespace, ref.name),)
            case Pod():
                return _of_pods([pod for pod in (change.before, change.after) if isinstance(pod, Pod)], lookup)
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        rs = lookup.view.get(ReplicaSet, *key)
        if rs is None:
            return NOTHING
        going = rs.metadata.deletion_timestamp is not None
        claims = claim(reference(rs, REPLICA_SETS), rs.spec.selector, PODS, candidates(lookup, rs), going=going)
        active = [pod for pod in claims.mine if is_active(pod)]
        writes: list[Write] = list(claims.writes)
        surplus = len(active) - rs.spec.replicas
        if not going and surplus < 0:
            writes.extend([Create(PODS, key.namespace, pod_document(rs))] * min(-surplus, AT_ONCE))
        elif not going and surplus > 0:
            doomed = deletion_order(active)[: min(surplus, AT_ONCE)]
            writes.extend(Delete(PODS, key.namespace, pod.metadata.name, pod.metadata.uid) for pod in doomed)
        status = status_of(rs, active, now)
        if status != rs.status:
            writes.append(Patch(REPLICA_SETS, key.namespace, key.name, {"status": _document(status)}, "status"))
        return Plan(tuple(writes), again_after=until_available(active, rs.spec.min_ready_seconds, now))


def candidates(lookup: Lookup, rs: ReplicaSet) -> list[Pod]:
    """Its pods, and those without a controller that its selector means."""
    found = {
        ref.name: pod
        for ref in lookup.dependents(rs.metadata.uid)
        if ref.kind == "Pod" and (pod := lookup.view.get(Pod, ref.namespace, ref.name))
    }
    for pod in lookup.pods_selected(rs.metadata.namespace, rs.spec.selector.match_labels):
        if controller_of(pod) is None and is_active(pod):
            found[pod.metadata.name] = pod
    return [found[name] for name in sorted(found)]


def is_active(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not pod.status.ended


def pod_document(rs: ReplicaSet) -> Object:
    template = rs.spec.template
    metadata: Object = {
        "generateName": f"{rs.metadata.name}-",
        "namespace": rs.metadata.namespace,
        "labels": template.metadata.labels,
        "ownerReferences": [reference(rs, REPLICA_SETS)],
    }
    if template.metadata.annotations:
        metadata["annotations"] = template.metadata.annotations
    return {"metadata": metadata, "spec": msgspec.json.decode(template.spec)}


def deletion_order(pods: Sequence[Pod]) -> list[Pod]:
    """Those first whose end disturbs the least."""
    crowd = Counter(pod.spec.node_name for pod in pods)
    phases = {"Pending": 0, "Unknown": 1}

    def rank(pod: Pod) -> tuple[float, ...]:
        return (
            bool(pod.spec.node_name),
            phases.get(pod.status.phase, 2),
            is_ready(pod),
            _cost(pod),
            -crowd[pod.spec.node_name],
            -_ready_since(pod),
            -sum(status.restart_count for status in pod.status.container_statuses),
            -seconds(pod.metadata.creation_timestamp),
        )

    return sorted(pods, key=rank)


def status_of(rs: ReplicaSet, active: Sequence[Pod], now: float) -> ReplicaSetStatus:
    labels = rs.spec.template.metadata.labels
    return ReplicaSetStatus(
        replicas=len(active),
        fully_labeled_replicas=sum(carries(pod.metadata.labels, labels) for pod in active),
        ready_replicas=sum(is_ready(pod) for pod in active),
        available_replicas=sum(is_available(pod, rs.spec.min_ready_seconds, now) for pod in active),
        observed_generation=rs.metadata.generation,
    )


def is_available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    return is_ready(pod) and (not min_ready_seconds or _ready_since(pod) + min_ready_seconds <= now)


def until_available(pods: Iterable[Pod], min_ready_seconds: int, now: float) -> float | None:
    """Seconds until the next of the ready pods has been so for long enough."""
    if not min_ready_seconds:
        return None
    waits = [_ready_since(pod) + min_ready_seconds - now for pod in pods if is_ready(pod)]
    return min((wait for wait in waits if wait > 0), default=None)


def _of_pods(pods: Sequence[Pod], lookup: Lookup) -> set[Key]:
    keys: set[Key] = set()
    for pod in pods:
        owner = controller_of(pod)
        if owner is not None:
            if owner.kind == "ReplicaSet":
                keys.add(Key(pod.metadata.namespace, owner.name))
            continue
        for rs in lookup.view.list(ReplicaSet, pod.metadata.namespace):
            if matches_selector(rs.spec.selector, pod.metadata.labels):
                keys.add(Key(pod.metadata.namespace, rs.metadata.name))
    return keys


def _ready_since(pod: Pod) -> float:
    return next((seconds(c.last_transition_time) for c in pod.status.conditions if c.type == "Ready"), 0.0)


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _document(status: ReplicaSetStatus) -> Object:
    """Zeroes are left out, as everywhere in the API, except the one that says how many there are."""
    return {
        "replicas": status.replicas,
        "fullyLabeledReplicas": status.fully_labeled_replicas or None,
        "readyReplicas": status.ready_replicas or None,
        "availableReplicas": status.available_replicas or None,
        "observedGeneration": status.observed_generation,
    }
