"""What containers say: kept per run of a container, one line of the file for each line said.

    2026-11-30T12:00:00.123456789Z stdout F the line

The letter is F for a line that ends here and P for a piece of one that was too long: the format of the container
runtime interface, which log collectors know. A file that grows beyond its limit is renamed to `.1`, in place of the
one before. The run before the present one is kept for `kubectl logs --previous`.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LONGEST = 16 * 1024  # bytes of a line in one piece
LIMIT = 10 * 1024 * 1024  # bytes of a file before it is renamed
KEPT_RUNS = 2
_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader asks for."""

    follow: bool = False
    tail: int | None = None  # lines; None: all
    since: float | None = None  # seconds since 1970
    timestamps: bool = False
    limit: int | None = None  # bytes; None: no limit


def stamp(nanoseconds: int) -> str:
    """Nanoseconds since 1970, as RFC 3339."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


def pieces(held: bytes, data: bytes, *, at_end: bool) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Split what a stream gave into (tag, line) and what is held until more comes. `at_end`: nothing will."""
    *lines, rest = (held + data).split(b"\n")
    found: list[tuple[bytes, bytes]] = []
    for line in lines:
        found += [(b"P", part) for part in _cut(line)[:-1]]
        found.append((b"F", _cut(line)[-1]))
    parts = _cut(rest)
    found += [(b"P", part) for part in parts[:-1]]
    if at_end and parts[-1]:
        return [*found, (b"F", parts[-1])], b""
    return found, parts[-1]


def _cut(line: bytes) -> list[bytes]:
    return [line[start : start + LONGEST] for start in range(0, len(line), LONGEST)] or [b""]


class Log:
    """The log of one run of a container. One task writes, in the same event loop as the readers."""

    def __init__(self, path: Path, *, limit: int = LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._size = 0
        self._turn = 0  # how often the file has been renamed
        self._grown = asyncio.Event()  # set and replaced at each change
        self.closed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  closed by `close`
        self._size = self._file.tell()

    def write(self, stream: bytes, lines: list[tuple[bytes, bytes]]) -> None:
        """`stream`: b"stdout" or b"stderr"."""
        if not lines or self.closed:
            return
        head = stamp(time.time_ns()).encode() + b" " + stream + b" "
        data = b"".join(head + tag + b" " + line + b"\n" for tag, line in lines)
        if self._size and self._size + len(data) > self._limit:
            self._rotate()
        self._file.write(data)
        self._size += len(data)
        self._tell()

    def close(self) -> None:
        """Nothing more will be written: followers come to an end."""
        if not self.closed:
            self.closed = True
            self._file.close()
            self._tell()

    def _rotate(self) -> None:
        self._file.close()
        os.replace(self.path, rotated(self.path))
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self._size = 0
        self._turn += 1

    def _tell(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def follow(self, wanted: Wanted) -> AsyncIterator[bytes]:
        """What is there, then what comes, until the container ends."""
        turn, grown = self._turn, self._grown
        before = read(self.path, wanted)
        current = open(self.path, "rb")  # noqa: SIM115, ASYNC230  local; what was just written is in memory
        try:
            current.seek(0, os.SEEK_END)
            for chunk in before:
                yield chunk
            while True:
                if data := current.read(_CHUNK):
                    yield b"".join(rendered(line, wanted) for line in (data + current.readline()).split(b"\n")[:-1])
                elif turn != self._turn:
                    turn = self._turn
                    current.close()
                    current = open(self.path, "rb")  # noqa: SIM115, ASYNC230
                elif self.closed:
                    return
                else:
                    await grown.wait()
                    grown = self._grown
        finally:
            current.close()


def rotated(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def read(path: Path, wanted: Wanted) -> list[bytes]:
    """What is in the files now, in chunks of whole lines; nothing where there is no such file."""
    lines = list(_lines(path))
    if wanted.since is not None:
        first = stamp(int(wanted.since * 1e9)).encode()
        lines = [line for line in lines if line >= first]
    if wanted.tail is not None:
        lines = _last(lines, wanted.tail)
    return [
        b"".join(rendered(line, wanted) for line in lines[start : start + 512]) for start in range(0, len(lines), 512)
    ]


def rendered(line: bytes, wanted: Wanted) -> bytes:
    """As a reader sees it: without what the format adds."""
    moment, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, _, said = rest.partition(b" ")
    return (moment + b" " if wanted.timestamps else b"") + said + (b"\n" if tag == b"F" else b"")


def _lines(path: Path) -> Iterator[bytes]:
    for file in (rotated(path), path):
        with suppress(FileNotFoundError):
            yield from file.read_bytes().split(b"\n")[:-1]


def _last(lines: list[bytes], count: int) -> list[bytes]:
    """The last `count` lines, of which pieces make one."""
    if count <= 0:
        return []
    start = len(lines)
    while start and count:
        start -= 1
        count -= start > 0 and _is_end(lines[start - 1])
    return lines[start:]


def _is_end(line: bytes) -> bool:
    return line.split(b" ", 3)[2:3] == [b"F"]


def path_of(directory: Path, container: str, run: int) -> Path:
    """Where the log of a container's run is: `run` counts its restarts."""
    return directory / container / f"{run}.log"


def forget_old(directory: Path, container: str, run: int) -> None:
    """Keep the run and the one before it."""
    for file in (directory / container).glob("*.log*"):
        number = file.name.partition(".")[0]
        if number.isdigit() and int(number) <= run - KEPT_RUNS:
            file.unlink(missing_ok=True)


async def collect(reader: asyncio.StreamReader, log: Log, stream: bytes) -> None:
    """Until the stream ends."""
    held = b""
    while data := await reader.read(_CHUNK):
        lines, held = pieces(held, data, at_end=False)
        log.write(stream, lines)
    log.write(stream, pieces(held, b"", at_end=True)[0])
