"""The objects of now, as the Mirror last heard of them. Pure.

The Mirror changes a View in place while its owner waits; between two awaits of the owner it stands still.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from clusterip.model.objects import EndpointSlice, ObjectMeta, Value

T = TypeVar("T", bound=Value)

SERVICE_NAME = "kubernetes.io/service-name"


class Ref(NamedTuple):
    kind: str
    namespace: str  # "" for kinds that have none
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """`before` None: it is new. `after` None: it is gone."""

    before: Value | None
    after: Value | None


def metadata(value: Value) -> ObjectMeta:
    found: ObjectMeta = value.metadata  # type: ignore[attr-defined]  # every kind has it, their base does not say so
    return found


def ref(value: Value) -> Ref:
    meta = metadata(value)
    return Ref(type(value).__name__, meta.namespace, meta.name)


class View:
    def __init__(self) -> None:
        self._kinds: dict[type[Value], dict[str, dict[str, Value]]] = {}  # kind -> namespace -> name -> object
        self._slices: dict[tuple[str, str], dict[str, EndpointSlice]] = {}  # (namespace, Service) -> name -> slice

    def __repr__(self) -> str:
        counts = (f"{kind.__name__}={sum(map(len, spaces.values()))}" for kind, spaces in self._kinds.items())
        return f"View({' '.join(sorted(counts))})"

    def get(self, as_type: type[T], namespace: str, name: str) -> T | None:
        return cast("T | None", self._kinds.get(as_type, {}).get(namespace, {}).get(name))

    def list(self, as_type: type[T], namespace: str | None = None) -> Iterable[T]:
        """All of a kind, or those of one namespace, in no particular order."""
        spaces = self._kinds.get(as_type, {})
        if namespace is not None:
            return cast("Iterable[T]", spaces.get(namespace, {}).values())
        return (cast("T", value) for space in spaces.values() for value in space.values())

    def slices(self, namespace: str, service: str) -> tuple[EndpointSlice, ...]:
        """Those labelled as the Service's, in the order of their names."""
        found: Mapping[str, EndpointSlice] = self._slices.get((namespace, service), {})
        return tuple(found[name] for name in sorted(found))

    def put(self, value: Value) -> Value | None:
        """Sets `value`; returns what it replaced. Only the owner of the view calls this."""
        meta = metadata(value)
        space = self._kinds.setdefault(type(value), {}).setdefault(meta.namespace, {})
        before = space.get(meta.name)
        space[meta.name] = value
        if isinstance(before, EndpointSlice):
            self._unlist(before)
        if isinstance(value, EndpointSlice) and SERVICE_NAME in meta.labels:
            self._slices.setdefault((meta.namespace, meta.labels[SERVICE_NAME]), {})[meta.name] = value
        return before

    def remove(self, as_type: type[Value], namespace: str, name: str) -> Value | None:
        """Removes and returns it. Only the owner of the view calls this."""
        spaces = self._kinds.get(as_type, {})
        space = spaces.get(namespace, {})
        before = space.pop(name, None)
        if before is not None and not space:
            del spaces[namespace]
        if isinstance(before, EndpointSlice):
            self._unlist(before)
        return before

    def _unlist(self, slice_: EndpointSlice) -> None:
        key = (slice_.metadata.namespace, slice_.metadata.labels.get(SERVICE_NAME, ""))
        listed = self._slices.get(key)
        if listed is None:
            return
        listed.pop(slice_.metadata.name, None)
        if not listed:
            del self._slices[key]
