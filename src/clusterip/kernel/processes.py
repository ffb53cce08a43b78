"""Processes of pods: in namespaces of their own, or beside one that is.

    async with Launcher() as launcher:
        process = await launcher.start(Program(argv=("echo", "hello")), Container(netns="pod-a"), Stdio(out=1, err=2))
        end = await process.ended()

The forking is done by `kernel.launcher`, a small program that lives as long as the Launcher does; what it guarantees is
said there. Measured here: 3.3 ms from order to running program, 1.1 MB for the init of each container.
"""

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel import netns

SCRIPT = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class Program:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cwd: str = "/"


@dataclass(frozen=True, slots=True)
class Container:
    """Namespaces for mounts, hostname and pids are always its own; so is the network, if named."""

    netns: str = ""  # "": that of the Launcher
    hostname: str = ""  # "": the host's
    binds: tuple[tuple[str, str], ...] = ()  # (file, over which file it is seen in the container)


@dataclass(frozen=True, slots=True)
class Stdio:
    """Descriptors that the process gets; the caller keeps, and closes, its own."""

    stdin: int | None = None  # None: /dev/null
    out: int | None = None
    err: int | None = None
    tty: bool = False  # make stdin the controlling terminal


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended. `error` says why it never ran."""

    code: int  # exit status; 128 + n: by signal n
    error: str = ""


class StartFailed(ClusterIPError):
    """The program did not run: not found, not executable, no such working directory."""


class Process:
    """A process that runs, or ran."""

    def __init__(self, pid: int, end: "asyncio.Future[End]") -> None:
        self.pid = pid  # the host's number; of a container: its init's
        self._end = end
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd = -1  # so short a life that the launcher has reaped it
        else:
            self._pidfd = pidfd
            end.add_done_callback(lambda _: os.close(pidfd))

    async def ended(self) -> End:
        """Waits for the end; any number of tasks may. Raises Unavailable if the launcher is dead."""
        return await asyncio.shield(self._end)

    @property
    def running(self) -> bool:
        return self._pidfd >= 0 and not self._end.done()

    def signal(self, number: signal.Signals) -> None:
        """Signal the main process; SIGKILL ends the whole container. No error if it has ended."""
        if self.running:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


class Launcher:
    """Use as `async with Launcher() as launcher`. At the end of the block every process it started is dead."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Launcher":
        # Each container costs the agent five descriptors, and the usual limit is 1024.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.fileno()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(SCRIPT), str(fd), stdin=asyncio.subprocess.DEVNULL, pass_fds=(fd,)
            )
        self._control = ours
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._control is not None
        assert self._process is not None
        self._control.close()
        await self._process.wait()

    async def start(self, program: Program, container: Container, stdio: Stdio = Stdio()) -> Process:
        """Returns once the program runs. Raises StartFailed."""
        order: dict[str, object] = {
            "netns": str(netns.path(container.netns)) if container.netns else "",
            "hostname": container.hostname,
            "binds": container.binds,
        }
        report = await self._order(program, order, stdio)
        return await _or_killed(report, report.started)

    async def join(self, program: Program, beside: Process, stdio: Stdio = Stdio()) -> Process:
        """Run a program in the namespaces of a container. Whether it could be run is in how it ended."""
        report = await self._order(program, {"join": beside.pid}, stdio)
        return await _or_killed(report, report.born)

    async def _order(self, program: Program, order: dict[str, object], stdio: Stdio) -> "_Report":
        if self._control is None or self._process is None or self._process.returncode is not None:
            raise Unavailable("launcher of pods' processes: it has ended")
        order |= {"argv": program.argv, "env": dict(program.env), "cwd": program.cwd, "tty": stdio.tty}
        with ExitStack() as stack:
            memory = _closing(stack, os.memfd_create("order"))
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(json.dumps(order).encode())
            os.lseek(memory, 0, os.SEEK_SET)
            null = _closing(stack, os.open(os.devnull, os.O_RDWR))
            given = [null if fd is None else fd for fd in (stdio.stdin, stdio.out, stdio.err)]
            reader, writer = os.pipe()
            _closing(stack, writer)
            loop = asyncio.get_running_loop()
            _, report = await loop.connect_read_pipe(_Report, os.fdopen(reader, "rb", buffering=0))
            try:
                socket.send_fds(self._control, [b"!"], [memory, *given, writer])
            except OSError as error:
                raise Unavailable(f"launcher of pods' processes: it does not listen, {error}") from error
        return report


async def output_pipe() -> tuple[asyncio.StreamReader, int]:
    """Where to read what a process says, and the descriptor to give it, which the caller closes after the start."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", buffering=0))
    return reader, writing


class _Report(asyncio.Protocol):
    """What the launcher says of one process, as three futures. Which of the first two counts depends on the order."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.born: asyncio.Future[Process] = loop.create_future()
        self.started: asyncio.Future[Process] = loop.create_future()
        self.end: asyncio.Future[End] = loop.create_future()
        for future in (self.born, self.started, self.end):
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody need ask
        self._rest = b""
        self._error = ""
        self._runs = False

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard(json.loads(line))

    def _heard(self, word: dict[str, int | str | bool]) -> None:
        match word:
            case {"pid": int(pid)}:
                self.born.set_result(Process(pid, self.end))
                self._settle()
            case {"started": True}:
                self._runs = True
                self._settle()
            case {"error": str(error)}:
                self._error = error
            case {"exit": int(code)}:
                # The launcher has said all it had to say: exit is its last word, and init's words came before.
                self._fail(StartFailed(self._error or "it ended before it began"), self.born, self.started)
                self.end.set_result(End(code, self._error))

    def _settle(self) -> None:
        """The pid comes from the launcher and "started" from the init: in either order."""
        if self._runs and self.born.done():
            self.started.set_result(self.born.result())

    def connection_lost(self, _: Exception | None) -> None:
        self._fail(Unavailable("launcher of pods' processes: it has ended"), self.born, self.started, self.end)

    def _fail(self, error: ClusterIPError, *futures: "asyncio.Future[Any]") -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)


async def _or_killed(report: _Report, ready: "asyncio.Future[Process]") -> Process:
    """Wait until it is ready. Who is cancelled while waiting leaves no process that nobody knows of."""
    try:
        return await asyncio.shield(ready)
    except asyncio.CancelledError:
        report.born.add_done_callback(_kill)
        raise


def _kill(born: "asyncio.Future[Process]") -> None:
    if born.exception() is None:
        born.result().signal(signal.SIGKILL)


def _closing(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd
