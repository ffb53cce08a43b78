"""What changed since somebody last looked: folded per key, and given back when it could not be used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

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
