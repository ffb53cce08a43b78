"""A View, and the ways from one object to others that it does not have: which Services select a pod, which pods a
selector means, which pods are on a node, what an object owns. Each way is an index: no question walks all objects.

The loop tells it every change before anybody plans.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from clusterip.client.view import Change, Ref, View, metadata, ref
from clusterip.model.objects import Labels, Pod, Service, Value

Pair: TypeAlias = tuple[str, str, str]  # namespace, label, value
K = TypeVar("K")
V = TypeVar("V")


class Lookup:
    def __init__(self, view: View) -> None:
        self.view = view
        self._pods: dict[Pair, dict[str, None]] = {}  # names of the pods that carry a label; a dict keeps their order
        self._services: dict[Pair, dict[str, None]] = {}  # names of the Services filed under one pair of their selector
        self._filed: dict[tuple[str, str], Pair] = {}  # Service -> the pair it is filed under
        self._on_node: dict[str, dict[tuple[str, str], None]] = {}  # node -> (namespace, name) of its pods
        self._dependents: dict[str, dict[Ref, None]] = {}  # uid of an owner -> what it owns

    def note(self, key: Ref, change: Change) -> None:
        before, after = change.before, change.after
        self._note_owners(key, before, after)
        match before or after:
            case Pod():
                self._note_pod(key, before, after)
            case Service():
                self._note_service(key, after)
            case _:
                pass

    def pods_selected(self, namespace: str, selector: Mapping[str, str]) -> Iterator[Pod]:
        """Pods that carry all pairs of `selector`; an empty one means every pod of the namespace."""
        if not selector:
            yield from self.view.list(Pod, namespace)
            return
        smallest = min((self._pods.get((namespace, *pair), {}) for pair in selector.items()), key=len)
        for name in list(smallest):
            pod = self.view.get(Pod, namespace, name)
            if pod is not None and carries(pod.metadata.labels, selector):
                yield pod

    def services_selecting(self, pod: Pod) -> Iterator[str]:
        """Names of the Services of the pod's namespace whose selector it meets."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for pair in (*labels.items(), ("", "")):
            for name in self._services.get((namespace, *pair), ()):
                service = self.view.get(Service, namespace, name)
                if service and service.spec.selector is not None and carries(labels, service.spec.selector):
                    yield name

    def pods_on(self, node: str) -> Iterator[Pod]:
        for namespace, name in list(self._on_node.get(node, ())):
            pod = self.view.get(Pod, namespace, name)
            if pod is not None and pod.spec.node_name == node:
                yield pod

    def dependents(self, uid: str) -> tuple[Ref, ...]:
        """All that names the uid as an owner."""
        return tuple(self._dependents.get(uid, ()))

    def _note_owners(self, key: Ref, before: Value | None, after: Value | None) -> None:
        had = {owner.uid for owner in metadata(before).owner_references} if before else set()
        has = {owner.uid for owner in metadata(after).owner_references} if after else set()
        for uid in had - has:
            _drop(self._dependents, uid, key)
        for uid in has - had:
            self._dependents.setdefault(uid, {})[key] = None

    def _note_pod(self, key: Ref, before: Value | None, after: Value | None) -> None:
        had = before.metadata.labels.items() if isinstance(before, Pod) else ()
        has = after.metadata.labels.items() if isinstance(after, Pod) else ()
        for pair in set(had) - set(has):
            _drop(self._pods, (key.namespace, *pair), key.name)
        for pair in has:
            self._pods.setdefault((key.namespace, *pair), {})[key.name] = None
        place = (key.namespace, key.name)
        if isinstance(before, Pod) and before.spec.node_name:
            _drop(self._on_node, before.spec.node_name, place)
        if isinstance(after, Pod) and after.spec.node_name:
            self._on_node.setdefault(after.spec.node_name, {})[place] = None

    def _note_service(self, key: Ref, after: Value | None) -> None:
        """Filed under the pair that the fewest others are filed under: labels that all share cost nothing."""
        service = (key.namespace, key.name)
        filed = self._filed.pop(service, None)
        if filed is not None:
            _drop(self._services, filed, key.name)
        if not isinstance(after, Service) or after.spec.selector is None:
            return
        pairs = [(key.namespace, *pair) for pair in after.spec.selector.items()] or [(key.namespace, "", "")]
        chosen = min(pairs, key=lambda pair: len(self._services.get(pair, ())))
        self._filed[service] = chosen
        self._services.setdefault(chosen, {})[key.name] = None


def carries(labels: Labels, selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def lookup_of(values: Iterable[Value]) -> Lookup:
    """Of all these objects."""
    lookup = Lookup(View())
    for value in values:
        lookup.note(ref(value), Change(lookup.view.put(value), value))
    return lookup


def _drop(index: dict[K, dict[V, None]], key: K, value: V) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(value, None)
        if not members:
            del index[key]
