"""What only the store on disk promises: nothing acknowledged is ever lost, and a wrong file is said to be one."""

import asyncio
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from clusterip.errors import Unavailable
from clusterip.store.base import Delete, Put
from clusterip.store.sqlite import open_store

# Writes as fast as it can from 16 tasks, over few keys, and says "key value" only when a commit has returned.
WRITER = """
import asyncio, pathlib, sys
from clusterip.store.base import Put
from clusterip.store.sqlite import open_store

async def main():
    store = await open_store(pathlib.Path(sys.argv[1]))
    start = store.revision
    print("open", flush=True)

    async def write(task):
        for n in range(100000):
            key, value = f"/k/{task}-{n % 3}", f"{start}.{task}.{n}"
            revision = await store.commit([], [Put(key, value.encode()), Put(f"/twin/{task}-{n % 3}", value.encode())])
            sys.stdout.write(f"{revision} {task}-{n % 3} {value}\\n")
            sys.stdout.flush()

    await asyncio.gather(*(write(task) for task in range(16)))

asyncio.run(main())
"""


async def killed_while_writing(path: Path, after: float) -> dict[str, tuple[int, str]]:
    """Starts a writer, ends it with SIGKILL `after` seconds; gives what it said of each key last."""
    pipe = asyncio.subprocess.PIPE
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(path), stdout=pipe)
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"open\n"
    await asyncio.sleep(after)
    writer.send_signal(signal.SIGKILL)
    said = await writer.stdout.read()
    await writer.wait()
    acknowledged: dict[str, tuple[int, str]] = {}
    for line in said.decode().splitlines(keepends=True):
        if line.endswith("\n"):  # the last line may have been cut by the kill
            revision, name, value = line.split()
            acknowledged[name] = (int(revision), value)
    return acknowledged


async def test_kill_9_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(time.time_ns())
    acknowledged: dict[str, tuple[int, str]] = {}
    for _ in range(6):
        acknowledged |= await killed_while_writing(path, chance.uniform(0.02, 0.4))
        store = await open_store(path)
        for name, (revision, value) in acknowledged.items():
            item, twin = await store.get(f"/k/{name}"), await store.get(f"/twin/{name}")
            assert item is not None
            assert twin is not None
            assert item.revision >= revision
            assert item.revision > revision or item.value == value.encode()
            assert (twin.value, twin.revision) == (item.value, item.revision), "half a commit"
            assert store.revision >= item.revision
        await store.close()
    assert acknowledged


async def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "a" / "store.db")
    await store.commit([], [Put("/a/x", b"1"), Put("/a/\u00fc", b"\x00\xff")])
    await store.commit([], [Put("/a/x", b"2")])
    await store.commit([], [Delete("/a/gone")])
    before = await store.list("/")
    await store.close()
    store = await open_store(tmp_path / "a" / "store.db")
    assert await store.list("/") == before
    assert store.revision == 3
    await store.close()


async def test_commits_that_wait_together_share_the_disk_and_keep_their_order(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    revisions = await asyncio.gather(*(store.commit([], [Put("/a/x", str(n).encode())]) for n in range(2000)))
    assert revisions == list(range(1, 2001))
    item = await store.get("/a/x")
    assert item is not None
    assert item.value == b"1999"
    await store.close()


async def test_a_store_in_use_is_not_opened_twice(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    with pytest.raises(Unavailable, match="locked") as caught:
        await open_store(tmp_path / "store.db")
    assert "--data-dir" in caught.value.hint
    await store.close()


async def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"something else entirely, " * 100)
    with pytest.raises(Unavailable, match="not a database"):
        await open_store(path)
    assert path.read_bytes() == b"something else entirely, " * 100


async def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 77")
    db.close()
    with pytest.raises(Unavailable, match="format is 77"):
        await open_store(path)


async def test_a_write_that_the_disk_refuses_fails_and_leaves_no_trace(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    await store.commit([], [Put("/a/x", b"1")])
    store._db.execute("PRAGMA max_page_count = 1")  # what a full disk does, without filling one
    with pytest.raises(Unavailable, match="full"):
        await store.commit([], [Put("/a/y", b"2" * 100_000)])
    assert await store.get("/a/y") is None
    assert store.revision == 1
    store._db.execute("PRAGMA max_page_count = 100000")
    assert await store.commit([], [Put("/a/y", b"2")]) == 2
    await store.close()


async def test_a_closed_store_takes_no_more_writes(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    await store.close()
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await store.commit([], [Put("/a/x", b"1")])
