"""What a store is: versioned keys under one growing revision.

A commit is all or nothing and makes exactly one revision. Keys are text such as "/services/default/web"; values are
opaque bytes. Every implementation passes tests/store/test_contract.py.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from clusterip.errors import ClusterIPError


@dataclass(frozen=True, slots=True)
class Item:
    key: str
    value: bytes
    created: int  # revision of the commit that made the key, > 0
    revision: int  # revision of the commit that last wrote it, >= created


@dataclass(frozen=True, slots=True)
class Check:
    """The key must still be at `revision`; 0: it must not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Event:
    """One key's change. `item` is None when it was deleted; `before` is None when it was created."""

    revision: int
    key: str
    item: Item | None
    before: Item | None


@dataclass(frozen=True, slots=True)
class Page:
    items: tuple[Item, ...]  # in key order
    revision: int  # the list is of this revision
    remaining: int  # items of the same prefix behind this page


class Conflict(ClusterIPError):
    """A check failed; nothing was written. `found` is the key's revision now, 0 if it does not exist."""

    def __init__(self, key: str, found: int) -> None:
        super().__init__(f"store: {key} is at revision {found}")
        self.key = key
        self.found = found


class Compacted(ClusterIPError):
    """The revision asked for is older than what the store remembers."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"store: revision {revision} has been compacted, the oldest kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class Store(Protocol):
    async def get(self, key: str) -> Item | None: ...

    async def list(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> Page:
        """Items whose key starts with `prefix`, of `revision` (0: now; never one that is still to come), behind
        key `after`, at most `limit` (0: all). Raises Compacted."""
        ...

    async def commit(self, checks: Sequence[Check], writes: Sequence[Put | Delete]) -> int:
        """All of `writes` as one revision, durable when it returns. No key is written twice in one commit;
        deleting a key that does not exist changes nothing but the revision. Raises Conflict."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[int, tuple[Event, ...]], None]:
        """Yields (revision, events of the prefix up to it) for everything after revision `after`, in order; an
        empty tuple of events says only that time went on. Raises Compacted, also to a reader too slow to follow."""
        ...

    @property
    def revision(self) -> int:
        """Of the newest commit."""
        ...

    async def close(self) -> None: ...
