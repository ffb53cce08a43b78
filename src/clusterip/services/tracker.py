"""What changed since somebody last looked: folded per key, and given back when it could not be used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from clusterip.model.objects import EndpointSlice, Service, Value
from clusterip.services.resolve import SERVICE_NAME_LABEL, NodeContext, resolve
from clusterip.services.table import Entry, EntryKey, Family

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Change(Generic[V]):
    before: V | None  # None: there was none
    after: V | None  # None: there is none now


class ChangeTracker(Generic[K, V]):
    """Holds at most one change a key, so it needs no bound. Owned by one task, so it needs no lock.

    A change that goes there and back leaves nothing to do.
    """

    def __init__(self) -> None:
        self._pending: dict[K, Change[V]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __repr__(self) -> str:
        return f"ChangeTracker({len(self._pending)} pending)"

    def note(self, key: K, change: Change[V]) -> None:
        """`change.before` is what the caller last noted, or was given, as `after` for this key."""
        earlier = self._pending.pop(key, None)
        before = earlier.before if earlier else change.before
        if before != change.after:
            self._pending[key] = Change(before, change.after)

    def take(self) -> Mapping[K, Change[V]]:
        """All that is pending; none of it is pending afterwards."""
        taken, self._pending = self._pending, {}
        return taken

    def give_back(self, taken: Mapping[K, Change[V]]) -> None:
        """`taken` could not be used: it is pending again, beneath what was noted since."""
        since, self._pending = self._pending, dict(taken)
        for key, change in since.items():
            self.note(key, change)


class ServiceName(NamedTuple):
    namespace: str
    name: str


class ObjectChange(Protocol):
    """One object before and after; `client.view.Change` is one."""

    @property
    def before(self) -> Value | None: ...
    @property
    def after(self) -> Value | None: ...


class Objects(Protocol):
    """The objects of now; `client.view.View` is one."""

    def get(self, as_type: type[Service], namespace: str, name: str, /) -> Service | None: ...
    def slices(self, namespace: str, service: str, /) -> tuple[EndpointSlice, ...]: ...


def touched(changes: Iterable[ObjectChange]) -> set[ServiceName]:
    """The Services that these changes bear on; only those of Services and EndpointSlices bear on any.

    A slice that moved from one Service to another bears on both.
    """
    found: set[ServiceName] = set()
    for change in changes:
        for side in (change.before, change.after):
            match side:
                case Service(metadata=meta):
                    found.add(ServiceName(meta.namespace, meta.name))
                case EndpointSlice(metadata=meta) if owner := meta.labels.get(SERVICE_NAME_LABEL):
                    found.add(ServiceName(meta.namespace, owner))
    return found


class ServiceTable:
    """The entries of all Services, as of the last update. Owned by one task."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = tuple(families)
        self._entries: dict[ServiceName, Mapping[EntryKey, Entry]] = {}

    def __repr__(self) -> str:
        return f"ServiceTable({len(self._entries)} services)"

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._entries.values():
            yield from entries.values()

    def services(self) -> tuple[ServiceName, ...]:
        """Those that have entries."""
        return tuple(self._entries)

    def update(
        self, services: Iterable[ServiceName], objects: Objects, node: NodeContext
    ) -> Mapping[EntryKey, Change[Entry]]:
        """Resolve these Services anew, and no other; only what differs comes back."""
        changes: dict[EntryKey, Change[Entry]] = {}
        for name in services:
            before = self._entries.pop(name, {})
            after = self._resolve(name, objects, node)
            if after:
                self._entries[name] = after
            for key in before.keys() | after.keys():
                if before.get(key) != after.get(key):
                    changes[key] = Change(before.get(key), after.get(key))
        return changes

    def _resolve(self, name: ServiceName, objects: Objects, node: NodeContext) -> dict[EntryKey, Entry]:
        service = objects.get(Service, *name)
        if service is None:
            return {}
        slices = objects.slices(*name)
        return {e.key: e for family in self._families for e in resolve(service, slices, node, family)}
