"""The garbage collector: what is owned goes when its owners have gone.

Three ways, by finalizer of the owner: none (background: dependents go after it), `foregroundDeletion` (they go before
it), `orphan` (they stay and forget it). Source: Kubernetes docs, "Garbage Collection".
"""

from collections.abc import Iterable, Mapping

import msgspec

from clusterip.client.view import Change, Ref, metadata
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.writes import NOTHING, Delete, Key, Owner, Patch, Plan, Write
from clusterip.model.objects import OwnerReference, Value
from clusterip.model.resources import BY_KIND, Resource

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Garbage:
    """A key is any object: its kind and namespace, then its name. Follows the kinds it is given; an owner of another
    kind counts as there."""

    name = "garbage-collector"

    def __init__(self, types: Mapping[Resource, type[Value]]) -> None:
        self._resources = {resource.kind: resource for resource in types}
        self._types = {resource.kind: as_type for resource, as_type in types.items()}

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        value = change.after or change.before
        assert value is not None
        keys = {_key(ref)}
        if change.after is None or metadata(change.after).deletion_timestamp:
            keys.update(_key(dependent) for dependent in lookup.dependents(metadata(value).uid))
        if change.after is None:
            # A dependent that has gone may be what an owner in the foreground waits for.
            keys.update(Key(f"{o.kind}/{ref.namespace}", o.name) for o in metadata(value).owner_references)
            keys.update(Key(f"{o.kind}/", o.name) for o in metadata(value).owner_references)
        return (key for key in keys if self._worth(key, lookup))

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        kind, _, namespace = key.namespace.partition("/")
        as_type, resource = self._types.get(kind), self._resources.get(kind)
        value = lookup.view.get(as_type, namespace, key.name) if as_type else None
        if value is None or resource is None:
            return NOTHING
        finalizers = metadata(value).finalizers
        if metadata(value).deletion_timestamp:
            if ORPHAN in finalizers:
                return Plan((*self._orphan(value, lookup), _without(resource, value, ORPHAN)))
            if FOREGROUND in finalizers:
                return Plan(self._foreground(resource, value, lookup))
            return NOTHING
        return Plan(self._background(resource, value, lookup))

    def _worth(self, key: Key, lookup: Lookup) -> bool:
        """Most objects own nothing, are owned by what is there, and stay: no round for them."""
        kind, _, namespace = key.namespace.partition("/")
        as_type = self._types.get(kind)
        value = lookup.view.get(as_type, namespace, key.name) if as_type else None
        if value is None:
            return False
        meta = metadata(value)
        if meta.deletion_timestamp:
            return ORPHAN in meta.finalizers or FOREGROUND in meta.finalizers
        return any(not self._there(owner, meta.namespace, lookup, waiting=False) for owner in meta.owner_references)

    def _background(self, resource: Resource, value: Value, lookup: Lookup) -> tuple[Write, ...]:
        meta = metadata(value)
        solid = [o for o in meta.owner_references if self._there(o, meta.namespace, lookup, waiting=True)]
        leaving = [o for o in solid if not self._there(o, meta.namespace, lookup, waiting=False)]
        gone = [o for o in meta.owner_references if o not in solid]
        if len(solid) > len(leaving):
            if not gone and not leaving:
                return ()
            return (_owners(resource, value, [o for o in solid if o not in leaving]),)
        if leaving:
            way = "Foreground" if any(lookup.dependents(meta.uid)) else ""
            return (Delete(resource, meta.namespace, meta.name, meta.uid, propagation=way),)
        # The owner may only be unknown yet: lists of two kinds are not of one moment. So the server is asked.
        unless = tuple(owner for reference in gone if (owner := self._owner(reference, meta.namespace)))
        return (Delete(resource, meta.namespace, meta.name, meta.uid, unless=unless),) if gone else ()

    def _foreground(self, resource: Resource, value: Value, lookup: Lookup) -> tuple[Write, ...]:
        """Its dependents are planned as keys of their own; when none blocks it any more, it goes."""
        uid = metadata(value).uid
        for ref in lookup.dependents(uid):
            dependent = lookup.view.get(self._types[ref.kind], ref.namespace, ref.name)
            if dependent and any(o.uid == uid and o.block_owner_deletion for o in metadata(dependent).owner_references):
                return ()
        return (_without(resource, value, FOREGROUND),)

    def _orphan(self, value: Value, lookup: Lookup) -> list[Write]:
        uid = metadata(value).uid
        found = (
            (ref, lookup.view.get(self._types[ref.kind], ref.namespace, ref.name)) for ref in lookup.dependents(uid)
        )
        return [
            _owners(
                self._resources[ref.kind], dependent, [o for o in metadata(dependent).owner_references if o.uid != uid]
            )
            for ref, dependent in found
            if dependent is not None
        ]

    def _there(self, reference: OwnerReference, namespace: str, lookup: Lookup, *, waiting: bool) -> bool:
        """`waiting`: whether one that is being deleted in the foreground, and waits for its dependents, counts."""
        owner = self._owner(reference, namespace)
        if owner is None:
            return True
        found = lookup.view.get(owner.as_type, owner.namespace, owner.name)
        if found is None or metadata(found).uid != reference.uid:
            return False
        meta = metadata(found)
        return waiting or not (meta.deletion_timestamp and FOREGROUND in meta.finalizers)

    def _owner(self, reference: OwnerReference, namespace: str) -> Owner | None:
        """None: of a kind that is not followed."""
        resource = BY_KIND.get((reference.api_version, reference.kind))
        if resource is None or resource.kind not in self._types:
            return None
        place = namespace if resource.namespaced else ""
        return Owner(resource, place, reference.name, reference.uid, self._types[resource.kind])


def _key(ref: Ref) -> Key:
    return Key(f"{ref.kind}/{ref.namespace}", ref.name)


def _without(resource: Resource, value: Value, finalizer: str) -> Patch:
    meta = metadata(value)
    left = [f for f in meta.finalizers if f != finalizer]
    patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}}
    return Patch(resource, meta.namespace, meta.name, patch)


def _owners(resource: Resource, value: Value, owners: Iterable[OwnerReference]) -> Patch:
    meta = metadata(value)
    kept = msgspec.to_builtins(tuple(owners))
    patch = {"metadata": {"resourceVersion": meta.resource_version, "ownerReferences": kept}}
    return Patch(resource, meta.namespace, meta.name, patch)
