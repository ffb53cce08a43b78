"""A store that ends with its process: for tests, and for clusters that nobody needs tomorrow."""

from collections.abc import AsyncGenerator, Sequence

from clusterip.store.base import Check, Delete, Event, Item, Page, Put
from clusterip.store.history import History, Limits


class MemoryStore:
    def __init__(self, limits: Limits | None = None) -> None:
        self._history = History(limits=limits)

    async def get(self, key: str) -> Item | None:
        return self._history.get(key)

    async def list(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> Page:
        return self._history.page(prefix, revision, after, limit)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Put | Delete]) -> int:
        self._history.check(checks)
        return self._history.apply(writes)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[int, tuple[Event, ...]], None]:
        return self._history.watch(prefix, after)

    @property
    def revision(self) -> int:
        return self._history.revision

    async def close(self) -> None:
        """Nothing is held that would have to be let go."""
