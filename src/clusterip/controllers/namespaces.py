"""Namespaces on their way out: all that is in them goes first, then the finalizer that held them."""

from collections.abc import Iterable, Mapping

import msgspec

from clusterip.client.view import Change, Ref, metadata
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.writes import NOTHING, Delete, Key, Plan, Update, Write
from clusterip.model.objects import Namespace, Pod, Value
from clusterip.model.resources import NAMESPACES, Resource

FINALIZER = "kubernetes"


class Namespaces:
    """A key is a namespace."""

    name = "namespace"

    def __init__(self, types: Mapping[Resource, type[Value]]) -> None:
        self._types = {resource: as_type for resource, as_type in types.items() if resource.namespaced}

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        name = ref.name if ref.kind == "Namespace" else ref.namespace
        namespace = lookup.view.get(Namespace, "", name) if name else None
        return (Key("", name),) if namespace and namespace.metadata.deletion_timestamp else ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        namespace = lookup.view.get(Namespace, "", key.name)
        if namespace is None or not namespace.metadata.deletion_timestamp or FINALIZER not in namespace.spec.finalizers:
            return NOTHING
        left = [
            (resource, value)
            for resource, as_type in self._types.items()
            for value in lookup.view.list(as_type, key.name)
        ]
        if left:
            return Plan(tuple(_delete(resource, value) for resource, value in left if not _going(value)))
        return Plan((_finalize(namespace),))


def _going(value: Value) -> bool:
    return metadata(value).deletion_timestamp is not None


def _delete(resource: Resource, value: Value) -> Write:
    meta = metadata(value)
    # Pods end as gracefully as ever; what they need is still there, or their loss would not matter any more.
    way = "" if isinstance(value, Pod) else "Background"
    return Delete(resource, meta.namespace, meta.name, meta.uid, propagation=way)


def _finalize(namespace: Namespace) -> Update:
    document = {
        "metadata": msgspec.to_builtins(namespace.metadata),
        "spec": {"finalizers": [f for f in namespace.spec.finalizers if f != FINALIZER]},
        "status": {"phase": "Terminating"},
    }
    return Update(NAMESPACES, "", namespace.metadata.name, document, "finalize")
