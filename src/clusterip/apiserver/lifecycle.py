"""What a write does to an object besides what the client asked: names, uids, times, generations, and the steps from
a deletion to the end. Pure: the moment and the randomness come from the caller.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

from clusterip.apiserver.refusals import bad_request, conflict, invalid
from clusterip.apiserver.requests import DeleteQuery, Target
from clusterip.model.naming import generated
from clusterip.model.objects.pod import ENDED
from clusterip.model.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    Resource,
)
from clusterip.model.status import Cause, Object

DEFAULT_GRACE = 30  # seconds
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"  # finalizers that the garbage collector answers to
_WITH_GENERATION = frozenset((DEPLOYMENTS, ENDPOINT_SLICES, PODS, REPLICA_SETS))
_SERVER_SET = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "selfLink",
    "managedFields",
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The moment of a write, and the randomness it may use."""

    now: datetime
    uid: str
    suffix: str  # naming.SUFFIX_LENGTH characters of naming.ALPHABET

    def uid_of(self, name: str) -> str:
        """For another object that the same write makes."""
        return str(uuid5(UUID(self.uid), name))

    def time(self, seconds_later: int = 0) -> str:
        moment = self.now + timedelta(seconds=seconds_later)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def has_status(resource: Resource) -> bool:
    return "status" in resource.subresources


def begin(target: Target, obj: Object, stamp: Stamp) -> None:
    """Makes `obj` the first version of a new object, in place. Raises ApiError 400."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    _place(target, metadata)
    for field in ("resourceVersion", *_SERVER_SET):
        if field != "generateName":
            metadata.pop(field, None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated(metadata["generateName"], stamp.suffix)
    if not metadata.get("name"):
        raise invalid(target.resource, "", (Cause("metadata.name", "FieldValueRequired", _NAME_REQUIRED),))
    metadata["uid"] = stamp.uid
    metadata["creationTimestamp"] = stamp.time()
    if target.resource in _WITH_GENERATION:
        metadata["generation"] = 1
    if has_status(target.resource) and target.resource is not NODES:  # a node comes with its status, it measured it
        obj.pop("status", None)


_NAME_REQUIRED = "Required value: name or generateName is required"


def _place(target: Target, metadata: Object) -> None:
    """The body must agree with the path about where the object is."""
    if not target.resource.namespaced:
        if metadata.pop("namespace", ""):
            raise bad_request("namespace: must not be set, the kind has none")
        return
    given = metadata.get("namespace")
    if given and given != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = target.namespace


def succeed(target: Target, new: Object, old: Object) -> None:
    """Makes `new` the next version of `old`, in place: what is not the client's to change stays.
    Raises ApiError 400, 409."""
    metadata, before, resource = new["metadata"], old["metadata"], target.resource
    if resource.namespaced:
        _place(target, metadata)
    if metadata.get("name") != before["name"]:
        raise bad_request(
            f"the name of the object ({metadata.get('name', '')}) does not match the name on the URL ({before['name']})"
        )
    if metadata.get("uid") not in (None, "", before["uid"]):
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before['uid']}"
        raise conflict(resource, before["name"], why)
    if target.subresource == "status":
        _status_only(resource, new, old)
        metadata = new["metadata"]
    elif has_status(resource) and not target.subresource:
        _keep(new, old, "status")
    for field in _SERVER_SET:
        _keep(metadata, before, field)
    if resource is NAMESPACES and target.subresource != "finalize":
        finalizers = (old.get("spec") or {}).get("finalizers")
        new["spec"] = {**(new.get("spec") or {}), **({"finalizers": finalizers} if finalizers else {})}


def _keep(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _status_only(resource: Resource, new: Object, old: Object) -> None:
    """A write to `status` changes that; of the rest only labels, annotations and finalizers, and not where those
    belong to whoever owns the spec."""
    status, given = new.get("status"), new["metadata"]
    metadata = dict(old["metadata"])
    if resource not in (DEPLOYMENTS, REPLICA_SETS):
        for field in ("labels", "annotations", "finalizers"):
            _keep(metadata, given, field)
    new.clear()
    new.update({**old, "metadata": metadata})
    new.pop("status", None)
    if status is not None:
        new["status"] = status


def number_generation(resource: Resource, new: Object, old: Object) -> None:
    """A generation is a version of what is wanted: anything besides metadata and status."""
    if resource in _WITH_GENERATION and _wanted(new) != _wanted(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _wanted(obj: Object) -> Object:
    return {field: held for field, held in obj.items() if field not in ("metadata", "status")}


def same(new: Object, old: Object) -> bool:
    """Equal but for the resourceVersion: such a write is none."""
    return {**new, "metadata": {**new["metadata"], "resourceVersion": ""}} == {
        **old,
        "metadata": {**old["metadata"], "resourceVersion": ""},
    }


def finalizer_causes(new: Object, old: Object) -> list[Cause]:
    """What is going takes no new finalizers."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    message = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added}"
    return [Cause("metadata.finalizers", "FieldValueForbidden", message)] if added else []


def gone(resource: Resource, obj: Object) -> bool:
    """Its deletion was asked for, and nothing holds it any more."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource is NAMESPACES:
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def check_preconditions(resource: Resource, obj: Object, query: DeleteQuery) -> None:
    metadata = obj["metadata"]
    for what, wanted, found in (
        ("UID", query.uid, metadata["uid"]),
        ("ResourceVersion", query.resource_version, metadata["resourceVersion"]),
    ):
        if wanted and wanted != found:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            raise conflict(resource, metadata["name"], why)


def end(resource: Resource, obj: Object, query: DeleteQuery, stamp: Stamp) -> Object:
    """`obj` as a deletion leaves it; if that is `gone`, it goes at once. Asking again can only hasten it."""
    metadata = dict(obj["metadata"])
    ending: Object = {**obj, "metadata": metadata}
    grace = _grace(resource, obj, query)
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = stamp.time(grace)
        metadata["deletionGracePeriodSeconds"] = grace
        _hold(metadata, query.policy)
        if "generation" in metadata:
            metadata["generation"] += 1
    elif grace < (metadata.get("deletionGracePeriodSeconds") or 0):
        metadata["deletionTimestamp"] = stamp.time(grace)
        metadata["deletionGracePeriodSeconds"] = grace
    if resource is NAMESPACES:
        ending["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return ending


def _grace(resource: Resource, obj: Object, query: DeleteQuery) -> int:
    """Seconds. Only pods have any, and only those that a node runs."""
    spec = obj.get("spec") or {}
    if resource is not PODS or not spec.get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ENDED:
        return 0
    if query.grace_seconds is not None:
        return query.grace_seconds
    return int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE))


def _hold(metadata: Object, policy: str) -> None:
    """The finalizer of the way its dependents are to go, in place of any other such."""
    finalizers = list(metadata.get("finalizers") or ())
    if policy:
        wanted = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])
        finalizers = [one for one in finalizers if one not in (FOREGROUND, ORPHAN)] + wanted
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
