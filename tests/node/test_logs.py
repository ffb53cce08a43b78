import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.node import logs
from clusterip.node.logs import LONGEST, Log, Wanted, collect, forget_old, path_of, pieces, read, rotated, stamp


def said(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"F", line.encode()) for line in text.split()]


def shown(path: Path, **wanted: object) -> str:
    return b"".join(read(path, Wanted(**wanted))).decode()  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with closing(Log(path_of(tmp_path, "web", 0))) as opened:
        yield opened


@given(st.lists(st.binary(max_size=40)), st.integers(1, 7))
def test_whatever_is_said_is_kept_to_the_byte(chunks: list[bytes], longest: int) -> None:
    kept, held = b"", b""
    original = logs.LONGEST
    logs.LONGEST = longest
    try:
        for chunk in chunks:
            lines, held = pieces(held, chunk, at_end=False)
            assert len(held) <= longest
            kept += b"".join(line + (b"\n" if tag == b"F" else b"") for tag, line in lines)
        lines, held = pieces(held, b"", at_end=True)
        kept += b"".join(line + (b"\n" if tag == b"F" else b"") for tag, line in lines)
    finally:
        logs.LONGEST = original
    whole = b"".join(chunks)
    assert held == b""
    assert kept == whole + (b"\n" if whole and not whole.endswith(b"\n") else b"")


def test_a_line_is_kept_with_its_time_and_stream(log: Log) -> None:
    log.write(b"stderr", said("hello"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z stderr F hello\n", log.path.read_text())
    assert shown(log.path) == "hello\n"
    assert re.fullmatch(r"\S+Z hello\n", shown(log.path, timestamps=True))


@pytest.mark.parametrize(("tail", "expected"), [(0, ""), (1, "c\n"), (2, "b\nc\n"), (9, "a\nb\nc\n")])
def test_the_last_lines_can_be_asked_for(log: Log, tail: int, expected: str) -> None:
    log.write(b"stdout", said("a b c"))
    assert shown(log.path, tail=tail) == expected


def test_a_long_line_is_one_line_for_who_reads(log: Log) -> None:
    lines, _ = pieces(b"", b"a\n" + b"x" * (LONGEST * 2 + 1) + b"\n", at_end=False)
    log.write(b"stdout", lines)
    assert log.path.read_bytes().count(b"\n") == 4
    assert shown(log.path, tail=1) == "x" * (LONGEST * 2 + 1) + "\n"
    assert shown(log.path, tail=2).startswith("a\nx")


def test_only_what_is_newer_can_be_asked_for(log: Log) -> None:
    log.write(b"stdout", said("old"))
    between = time.time()
    log.write(b"stdout", said("new"))
    assert shown(log.path, since=between) == "new\n"


def test_a_full_file_makes_room_for_a_new_one_and_both_are_read(tmp_path: Path) -> None:
    with closing(Log(path_of(tmp_path, "web", 0), limit=200)) as log:
        for number in range(10):
            log.write(b"stdout", said(f"line-{number}"))
    assert log.path.stat().st_size <= 200
    assert rotated(log.path).stat().st_size <= 200
    text = shown(log.path)
    assert text.endswith("line-8\nline-9\n")
    assert text.split() == [f"line-{n}" for n in range(10 - len(text.split()), 10)]


def test_a_log_goes_on_where_it_stopped(log: Log) -> None:
    log.write(b"stdout", said("a"))
    log.close()
    with closing(Log(log.path)) as again:
        again.write(b"stdout", said("b"))
    assert shown(log.path) == "a\nb\n"


def test_the_run_before_is_kept_and_no_more(tmp_path: Path) -> None:
    for run in range(3):
        Log(path_of(tmp_path, "web", run)).close()
    forget_old(tmp_path, "web", 2)
    assert sorted(file.name for file in (tmp_path / "web").iterdir()) == ["1.log", "2.log"]


def test_what_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert shown(tmp_path / "none.log") == ""


async def gathered(lines: AsyncIterator[bytes]) -> str:
    return b"".join([chunk async for chunk in lines]).decode()


async def test_who_follows_hears_all_of_it_once_to_the_end(tmp_path: Path) -> None:
    log = Log(path_of(tmp_path, "web", 0), limit=2000)
    log.write(b"stdout", said("0 1 2"))
    following = [asyncio.ensure_future(gathered(log.follow(Wanted(follow=True, tail=tail)))) for tail in (None, 1, 0)]
    await asyncio.sleep(0)
    for number in range(3, 100):
        log.write(b"stdout", said(str(number)))
        if number % 3 == 0:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    log.close()
    numbers = [[int(n) for n in (await one).split()] for one in following]
    assert numbers == [list(range(100)), list(range(2, 100)), list(range(3, 100))]


async def test_who_follows_a_log_that_is_closed_is_not_kept_waiting(log: Log) -> None:
    log.write(b"stdout", said("a"))
    log.close()
    log.write(b"stdout", said("late"))
    assert await gathered(log.follow(Wanted(follow=True))) == "a\n"


async def test_a_stream_is_collected_to_its_end(log: Log) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"one\ntw")
    reader.feed_data(b"o")
    reader.feed_eof()
    await collect(reader, log, b"stdout")
    assert shown(log.path) == "one\ntwo\n"


def test_times_are_written_to_the_nanosecond() -> None:
    assert stamp(1_796_040_000_000_000_007) == "2026-11-30T12:00:00.000000007Z"
