"""Watches: what happened to a collection after a revision, as long as the client listens.

A client that reads too slowly is not buffered for: the store's ring moves on, and the client is told 410.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from clusterip.apiserver import documents, refusals
from clusterip.apiserver.documents import Decoded
from clusterip.apiserver.output import Form, Renderer
from clusterip.apiserver.registry import Selection
from clusterip.apiserver.requests import ListQuery, Target
from clusterip.model.status import ApiError, Object
from clusterip.model.tables import partial
from clusterip.store.base import Compacted, Event, Item, Store

BOOKMARK_EVERY = 5.0  # seconds
LONGEST = 3600  # seconds a watch lasts, whatever the client says
_TOGETHER = 256  # events sent in one piece of the stream
_INITIAL_END = {"k8s.io/initial-events-end": "true"}

Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one client wants to follow, and in which form."""

    target: Target  # a collection
    query: ListQuery
    selection: Selection
    renderer: Renderer


class Watch:
    """One client's watch. `run` returns when its time is over."""

    def __init__(self, store: Store, wanted: Wanted, decoded: Decoded) -> None:
        self._store = store
        self._target = wanted.target
        self._query = wanted.query
        self._wanted = wanted.selection
        self._renderer = wanted.renderer
        self._decoded = decoded
        self._headed = False  # the columns of a table have been sent
        self._position = 0  # the revision up to which the client knows everything

    async def run(self, send: Send) -> None:
        try:
            async with asyncio.timeout(min(self._query.timeout_seconds or LONGEST, LONGEST)):
                await self._stream(send)
        except TimeoutError:
            if self._query.bookmarks:
                await send(self._bookmark())
        except Compacted as error:
            await send(_error(refusals.expired(error.revision, error.oldest)))
        except ApiError as error:
            await send(_error(error))

    async def _stream(self, send: Send) -> None:
        async for piece in self._initial():
            await send(piece)
        last = time.monotonic()
        async with aclosing(self._store.watch(self._target.prefix, self._position)) as changes:
            async for revision, events in changes:
                lines = [line for event in events if (line := self._line(event))]
                self._position = revision
                for start in range(0, len(lines), _TOGETHER):
                    await send(b"".join(lines[start : start + _TOGETHER]))
                if self._query.bookmarks and time.monotonic() - last >= BOOKMARK_EVERY:
                    last = time.monotonic()
                    await send(self._bookmark())

    async def _initial(self) -> AsyncGenerator[bytes, None]:
        """What there is, if the client wants that first; sets the position that the stream goes on from."""
        version, asked = self._query.resource_version, self._query.initial_events
        if version not in ("", "0") and not asked:
            self._position = self._query.revision
            if self._position > self._store.revision:
                # A client of a store that was younger than ours is: what it knows is of another world.
                raise refusals.expired(self._position, self._store.revision)
            return
        if asked is False:
            self._position = self._store.revision
            return
        page = await self._store.list(self._target.prefix)
        self._position = page.revision
        lines = [self._event("ADDED", i, i.revision) for i in page.items if self._wanted.matches_item(i)]
        for start in range(0, len(lines), _TOGETHER):
            yield b"".join(lines[start : start + _TOGETHER])
        if asked and self._query.bookmarks:
            yield self._bookmark(_INITIAL_END)

    def _line(self, event: Event) -> bytes:
        """What the event is to this client; b"": nothing. An object that begins or ceases to match comes or goes."""
        now = self._matches(event.item)
        before = self._matches(event.before)
        if now:
            assert event.item is not None
            return self._event("MODIFIED" if before else "ADDED", event.item, event.revision)
        if before:
            last = event.item or event.before
            assert last is not None
            return self._event("DELETED", last, event.revision)
        return b""

    def _matches(self, item: Item | None) -> bool:
        return item is not None and (self._wanted.all or self._wanted.matches(self._decoded.of(item)))

    def _event(self, kind: str, item: Item, revision: int) -> bytes:
        match self._renderer.form:
            case Form.TABLE:
                body = self._renderer.table(
                    [_at(self._decoded.of(item), revision)], str(revision), with_definitions=not self._headed
                )
                self._headed = True
            case Form.PARTIAL:
                body = msgspec.json.encode(partial(_at(self._decoded.of(item), revision)))
            case Form.JSON | Form.YAML:
                body = documents.at(item, revision)
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)

    def _bookmark(self, annotations: Object | None = None) -> bytes:
        resource, version = self._renderer.resource, str(self._position)
        metadata: Object = {"resourceVersion": version, "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        match self._renderer.form:
            case Form.TABLE:
                body = self._renderer.table([obj] if annotations else [], version, with_definitions=not self._headed)
                self._headed = True
            case Form.PARTIAL:
                body = msgspec.json.encode(partial(obj))
            case Form.JSON | Form.YAML:
                body = msgspec.json.encode(obj)
        return b'{"type":"BOOKMARK","object":%b}\n' % body


def _at(obj: Object, revision: int) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def _error(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status())
