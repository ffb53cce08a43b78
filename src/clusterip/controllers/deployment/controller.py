"""The controller of Deployments."""

from collections.abc import Iterable

from clusterip.client.view import Change, Ref
from clusterip.controllers.deployment import scaling
from clusterip.controllers.deployment.sets import REVISION, Sets, annotations, new_set, revision, sizes, sort_out
from clusterip.controllers.deployment.state import document, is_complete, status_of, until_deadline
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.ownership import Claims, claim, controller_of, reference
from clusterip.controllers.replicaset import is_active
from clusterip.controllers.times import rfc3339
from clusterip.controllers.writes import NOTHING, Delete, Key, Patch, Plan, Write, event
from clusterip.model.objects import Deployment, ObjectReference, Pod, ReplicaSet
from clusterip.model.resources import DEPLOYMENTS, REPLICA_SETS
from clusterip.model.selectors import matches_selector
from clusterip.model.status import Object


class Deployments:
    """A key is a Deployment. Each round takes one step; what it changes brings the next round."""

    name = "deployment"

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case Deployment():
                return (Key(ref.namespace, ref.name),)
            case ReplicaSet():
                found = [rs for rs in (change.before, change.after) if isinstance(rs, ReplicaSet)]
                return {key for rs in found for key in _of_set(rs, lookup)}
            case Pod() as pod if change.after is None:
                return _waiting_to_recreate(pod, lookup)
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        deployment = lookup.view.get(Deployment, *key)
        if deployment is None:
            return NOTHING
        going = deployment.metadata.deletion_timestamp is not None
        claims = _claims(lookup, deployment, going=going)
        sets = sort_out(deployment, claims.mine)
        writes: list[Write] = list(claims.writes)
        if not going:
            writes.extend(_step(lookup, deployment, sets, now))
        status = status_of(deployment, sets, now)
        if status != deployment.status:
            writes.append(Patch(DEPLOYMENTS, *key, {"status": document(status)}, "status"))
        return Plan(tuple(writes), again_after=until_deadline(deployment, status, now))


def _claims(lookup: Lookup, deployment: Deployment, *, going: bool) -> Claims[ReplicaSet]:
    namespace = deployment.metadata.namespace
    owned = {ref.name for ref in lookup.dependents(deployment.metadata.uid) if ref.kind == "ReplicaSet"}
    found = [
        rs for rs in lookup.view.list(ReplicaSet, namespace) if rs.metadata.name in owned or controller_of(rs) is None
    ]
    return claim(reference(deployment, DEPLOYMENTS), deployment.spec.selector, REPLICA_SETS, found, going=going)


def _step(lookup: Lookup, deployment: Deployment, sets: Sets, now: float) -> list[Write]:
    if deployment.spec.paused or scaling.was_scaled(deployment, sets):
        return _resize(deployment, sets, scaling.rescaled(deployment, sets), now, sized=True)
    if deployment.spec.strategy.type == "Recreate" and sets.old:
        stopping = scaling.sizes_of_old(deployment, sets)
        if stopping:
            return _resize(deployment, sets, stopping, now)
        if sets.new is None and _still_there(lookup, sets):
            return []
    if sets.new is None:
        create = new_set(deployment, sets, scaling.size_of_new(deployment, sets))
        name, replicas = create.object["metadata"]["name"], create.object["spec"]["replicas"]
        told = [_scaled(deployment, name, 0, replicas, now)] if replicas else []
        return [create, _revision(deployment, create.object["metadata"]["annotations"][REVISION]), *told]
    return [*_annotate(deployment, sets, sets.new), *_walk(deployment, sets, sets.new, now)]


def _walk(deployment: Deployment, sets: Sets, new: ReplicaSet, now: float) -> list[Write]:
    """The new one grows as far as it may; when it may not, the old ones shrink."""
    size = scaling.size_of_new(deployment, sets)
    if size != new.spec.replicas:
        return _resize(deployment, sets, {new.metadata.name: size}, now)
    shrunk = scaling.sizes_of_old(deployment, sets)
    if shrunk:
        return _resize(deployment, sets, shrunk, now)
    return _forget(deployment, sets) if is_complete(deployment, status_of(deployment, sets, now)) else []


def _annotate(deployment: Deployment, sets: Sets, new: ReplicaSet) -> list[Write]:
    wanted = annotations(deployment, sets)
    writes: list[Write] = []
    if wanted != new.metadata.annotations:
        patch: Object = {"metadata": {"annotations": wanted}}
        if new.spec.min_ready_seconds != deployment.spec.min_ready_seconds:
            patch["spec"] = {"minReadySeconds": deployment.spec.min_ready_seconds}
        writes.append(Patch(REPLICA_SETS, new.metadata.namespace, new.metadata.name, patch))
    if deployment.metadata.annotations.get(REVISION) != wanted[REVISION]:
        writes.append(_revision(deployment, wanted[REVISION]))
    return writes


def _revision(deployment: Deployment, number: str) -> Patch:
    meta = deployment.metadata
    return Patch(DEPLOYMENTS, meta.namespace, meta.name, {"metadata": {"annotations": {REVISION: number}}})


def _resize(
    deployment: Deployment, sets: Sets, wanted: scaling.Sizes, now: float, *, sized: bool = False
) -> list[Write]:
    """`sized`: all active sets learn the Deployment's new size, also those that keep theirs."""
    writes: list[Write] = []
    for rs in sets.all:
        name, before = rs.metadata.name, rs.spec.replicas
        after = wanted.get(name, before)
        marks = sizes(deployment)
        marked = all(rs.metadata.annotations.get(key) == value for key, value in marks.items())
        if after == before and (marked or not sized or before == 0):
            continue
        patch = {"metadata": {"annotations": marks}, "spec": {"replicas": after}}
        writes.append(Patch(REPLICA_SETS, rs.metadata.namespace, name, patch))
        if after != before:
            writes.append(_scaled(deployment, name, before, after, now))
    return writes


def _forget(deployment: Deployment, sets: Sets) -> list[Write]:
    """Old templates beyond the history that is to be kept."""
    empty = [
        rs
        for rs in sets.old
        if not rs.spec.replicas and not rs.status.replicas and rs.metadata.deletion_timestamp is None
    ]
    empty.sort(key=revision)
    surplus = max(len(empty) - deployment.spec.revision_history_limit, 0)
    return [Delete(REPLICA_SETS, rs.metadata.namespace, rs.metadata.name, rs.metadata.uid) for rs in empty[:surplus]]


def _still_there(lookup: Lookup, sets: Sets) -> bool:
    """Recreate: old pods, those on their way out included, end before new ones begin."""
    uids = [rs.metadata.uid for rs in sets.old]
    pods = (
        lookup.view.get(Pod, ref.namespace, ref.name)
        for uid in uids
        for ref in lookup.dependents(uid)
        if ref.kind == "Pod"
    )
    return any(pod is not None and (is_active(pod) or pod.metadata.deletion_timestamp is not None) for pod in pods)


def _scaled(deployment: Deployment, name: str, before: int, after: int, now: float) -> Write:
    meta = deployment.metadata
    about = ObjectReference(
        kind="Deployment", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="apps/v1"
    )
    way = "up" if after > before else "down"
    return event(
        about, "ScalingReplicaSet", f"Scaled {way} replica set {name} from {before} to {after}", now=rfc3339(now)
    )


def _of_set(rs: ReplicaSet, lookup: Lookup) -> set[Key]:
    owner = controller_of(rs)
    if owner is not None:
        return {Key(rs.metadata.namespace, owner.name)} if owner.kind == "Deployment" else set()
    return {
        Key(rs.metadata.namespace, deployment.metadata.name)
        for deployment in lookup.view.list(Deployment, rs.metadata.namespace)
        if matches_selector(deployment.spec.selector, rs.metadata.labels)
    }


def _waiting_to_recreate(pod: Pod, lookup: Lookup) -> set[Key]:
    owner = controller_of(pod)
    rs = lookup.view.get(ReplicaSet, pod.metadata.namespace, owner.name) if owner else None
    return _of_set(rs, lookup) if rs is not None else set()
