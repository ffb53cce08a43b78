"""Who controls what: finding it, taking what has no controller, letting go of what no longer matches. Pure.

An object has at most one controlling owner. Source: Kubernetes docs, "Owners and Dependents", "ReplicaSet".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from clusterip.client.view import metadata
from clusterip.controllers.writes import Patch, Write
from clusterip.model.objects import LabelSelector, OwnerReference, Value
from clusterip.model.resources import Resource
from clusterip.model.selectors import from_value
from clusterip.model.status import Object

T = TypeVar("T", bound=Value)


@dataclass(frozen=True, slots=True)
class Claims(Generic[T]):
    mine: tuple[T, ...]  # with those about to be adopted
    writes: tuple[Write, ...]


def controller_of(value: Value) -> OwnerReference | None:
    return next((owner for owner in metadata(value).owner_references if owner.controller), None)


def reference(owner: Value, resource: Resource) -> Object:
    """As the controlling owner reference that a dependent carries."""
    meta = metadata(owner)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def claim(owner: Object, selector: LabelSelector, resource: Resource, found: Iterable[T], *, going: bool) -> Claims[T]:
    """`owner`: its reference; `resource`: of `found`; `going`: the owner is being deleted and adopts nobody. Of an
    empty selector everything is refused: it would take the whole namespace."""
    matcher = from_value(selector)
    mine: list[T] = []
    writes: list[Write] = []
    for value in found:
        meta, controller = metadata(value), controller_of(value)
        matches = bool(matcher.requirements) and matcher.matches(meta.labels)
        if controller is not None and controller.uid == owner["uid"]:
            if matches or going:
                mine.append(value)
            elif meta.deletion_timestamp is None:
                writes.append(_owners(value, resource, [o for o in meta.owner_references if o.uid != owner["uid"]]))
        elif controller is None and matches and not going and meta.deletion_timestamp is None:
            mine.append(value)
            writes.append(_owners(value, resource, meta.owner_references, owner))
    return Claims(tuple(mine), tuple(writes))


def _owners(value: Value, resource: Resource, kept: Sequence[OwnerReference], added: Object | None = None) -> Patch:
    meta = metadata(value)
    owners = [*msgspec.to_builtins(tuple(kept)), *([added] if added else [])]
    # The version guards against taking what somebody else takes at this moment.
    patch = {"metadata": {"resourceVersion": meta.resource_version, "ownerReferences": owners}}
    return Patch(resource, meta.namespace, meta.name, patch)
