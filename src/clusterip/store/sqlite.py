"""A store in one SQLite file: WAL, synchronous=FULL, one writer thread, group commit.

Everything that is read is in memory (`history.History`); the file serves restart. A commit goes to the writer
thread, which puts all that have gathered while it was writing into one transaction: they share one fsync, each keeps
its own revision. Only then does the commit become visible, to its caller and to everybody else.

A commit whose checks name a key that is still on its way to the disk waits for that write first, so a check is
always made against what is durable, and a write that the disk refused has had no consequences.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from clusterip.errors import Unavailable, in_words
from clusterip.store.base import Check, Delete, Event, Item, Page, Put
from clusterip.store.history import History, Limits

_FORMAT = 1  # of the tables below, kept in the file's user_version
_TABLES = """
CREATE TABLE items (key TEXT PRIMARY KEY, value BLOB NOT NULL, created INTEGER NOT NULL, revision INTEGER NOT NULL);
CREATE TABLE head (revision INTEGER NOT NULL);
INSERT INTO head VALUES (0);
"""
_PUT = """
INSERT INTO items (key, value, created, revision) VALUES (?1, ?2, ?3, ?3)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision
"""
_TOGETHER = 512  # commits that share one fsync, at most


@dataclass(frozen=True, slots=True)
class _Waiting:
    writes: tuple[Put | Delete, ...]
    done: "asyncio.Future[int]"


class SQLiteStore:
    """Made by `open_store`; belongs to the event loop it was opened in."""

    def __init__(self, path: Path, db: sqlite3.Connection, history: History) -> None:
        self._path = path
        self._db = db
        self._history = history
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._underway: dict[str, asyncio.Future[int]] = {}  # key -> the last commit that writes it
        self._writer = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._closed = False
        self._writer.start()

    async def get(self, key: str) -> Item | None:
        return self._history.get(key)

    async def list(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> Page:
        return self._history.page(prefix, revision, after, limit)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Put | Delete]) -> int:
        while underway := {self._underway[check.key] for check in checks if check.key in self._underway}:
            await asyncio.wait(underway)
        if self._closed:
            raise Unavailable(f"store {self._path}: it has been closed")
        self._history.check(checks)
        waiting = _Waiting(tuple(writes), self._loop.create_future())
        self._underway.update((write.key, waiting.done) for write in waiting.writes)
        self._queue.put(waiting)
        return await asyncio.shield(waiting.done)

    def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[int, tuple[Event, ...]], None]:
        return self._history.watch(prefix, after)

    @property
    def revision(self) -> int:
        return self._history.revision

    async def close(self) -> None:
        """Returns when everything that was handed in is on the disk."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        self._db.close()

    def _write(self) -> None:
        """The writer thread: the only one that touches the file."""
        revision = self._history.revision
        while True:
            together, last = self._gather()
            if together:
                refusal = ""
                try:
                    revision = _write_all(self._db, revision, together)
                except sqlite3.Error as error:
                    refusal = str(error)
                self._loop.call_soon_threadsafe(self._settle, together, refusal)
            if last:
                return

    def _gather(self) -> tuple[tuple[_Waiting, ...], bool]:
        """What has been handed in since the last time, at least one; and whether that was the last of all."""
        together: list[_Waiting] = []
        try:
            waiting = self._queue.get()
            while waiting is not None:
                together.append(waiting)
                if len(together) == _TOGETHER:
                    return tuple(together), False
                waiting = self._queue.get_nowait()
        except Empty:
            return tuple(together), False
        return tuple(together), True

    def _settle(self, together: Sequence[_Waiting], refusal: str) -> None:
        """On the loop: what is durable becomes visible, in order; what was refused fails."""
        for waiting in together:
            for write in waiting.writes:
                if self._underway.get(write.key) is waiting.done:
                    del self._underway[write.key]
            if refusal:
                waiting.done.set_exception(Unavailable(f"store {self._path}: the write failed: {refusal}"))
            else:
                waiting.done.set_result(self._history.apply(waiting.writes))


def _write_all(db: sqlite3.Connection, revision: int, together: Sequence[_Waiting]) -> int:
    """One transaction. Returns the new head."""
    try:
        db.execute("BEGIN IMMEDIATE")
        for waiting in together:
            revision += 1
            for write in waiting.writes:
                if isinstance(write, Put):
                    db.execute(_PUT, (write.key, write.value, revision))
                else:
                    db.execute("DELETE FROM items WHERE key = ?", (write.key,))
        db.execute("UPDATE head SET revision = ?", (revision,))
        db.execute("COMMIT")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return revision


async def open_store(path: Path, limits: Limits | None = None) -> SQLiteStore:
    """Opens the file, or makes it. Raises Unavailable if it is no store, or in use."""
    db, items, revision = await asyncio.to_thread(_load, path)
    return SQLiteStore(path, db, History(items, revision, limits))


def _load(path: Path) -> tuple[sqlite3.Connection, list[Item], int]:
    db = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The writer thread takes the connection over; nobody else uses it after this function.
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
        _prepare(db, path)
        (revision,) = db.execute("SELECT revision FROM head").fetchone()
        return db, list(_read(db)), revision
    except (sqlite3.Error, OSError) as error:
        if db is not None:
            db.close()
        hint = "another API server has it open: end that one, or use another --data-dir" if _locked(error) else ""
        raise Unavailable(f"store {path}: cannot be opened: {in_words(error)}", hint=hint) from error
    except Unavailable:
        if db is not None:
            db.close()
        raise


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA locking_mode = EXCLUSIVE")  # two API servers on one file would each trust their own memory
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found not in (0, _FORMAT):
        raise Unavailable(f"store {path}: its format is {found}, this version reads {_FORMAT}")
    if not found:
        db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_FORMAT}; COMMIT;")


def _read(db: sqlite3.Connection) -> Iterator[Item]:
    for key, value, created, revision in db.execute("SELECT key, value, created, revision FROM items"):
        yield Item(key, bytes(value), created, revision)


def _locked(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
