"""`exec`: a program beside a container's, talked to over a WebSocket whose messages begin with a channel's number.

Source: Kubernetes, subprotocols v4.channel.k8s.io and v5.channel.k8s.io; the statuses are the kubelet's.
"""

import asyncio
import fcntl
import json
import os
import signal
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from clusterip.kernel.processes import End, Launcher, Process, Program, Stdio, output_pipe
from clusterip.model.status import Object

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
CHUNK = 32 * 1024
LAST_WORDS = 0.5  # seconds to read on after the end: its children may hold its output open for ever


@dataclass(frozen=True, slots=True)
class Wanted:
    argv: tuple[str, ...]
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Ends:
    """Our ends of a running program's streams."""

    outputs: tuple[tuple[int, asyncio.StreamReader], ...]  # channel -> what the program says
    stdin: asyncio.StreamWriter | None = None
    terminal: int | None = None  # descriptor of the terminal's master side


async def converse(
    socket: web.WebSocketResponse, launcher: Launcher, beside: Process, program: Program, wanted: Wanted
) -> None:
    """From start to the status of the end. A client that leaves takes the program with it."""
    async with _started(launcher, beside, program, wanted) as (process, ends):
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(_listen(socket, process, ends))
            speaking = [tasks.create_task(_speak(socket, channel, reader)) for channel, reader in ends.outputs]
            end = await process.ended()
            if speaking:
                _, slow = await asyncio.wait(speaking, timeout=LAST_WORDS)
                for task in slow:
                    task.cancel()
            listening.cancel()
        with suppress(ConnectionError):
            await socket.send_bytes(bytes([STATUS]) + json.dumps(outcome(end, wanted.argv)).encode())
    await socket.close()


def outcome(end: End, argv: tuple[str, ...]) -> Object:
    """The `Status` that tells how the program ended."""
    if end.error:
        message = f"Internal error occurred: error executing command in container: {end.error}"
        cause = {"message": f"error executing command in container: {end.error}"}
        failure = {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError"}
        return {**failure, "details": {"causes": [cause]}, "code": 500}
    if end.code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {' '.join(argv)[:200]}: exit status {end.code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(end.code)}]},
    }


@asynccontextmanager
async def _started(
    launcher: Launcher, beside: Process, program: Program, wanted: Wanted
) -> AsyncIterator[tuple[Process, Ends]]:
    with ExitStack() as theirs, ExitStack() as ours:
        stdio, ends = await (_terminal if wanted.tty else _pipes)(wanted, theirs)
        if ends.stdin:
            ours.callback(ends.stdin.close)
        if ends.terminal is not None:
            ours.callback(os.close, ends.terminal)
        process = await launcher.join(program, beside, stdio)
        theirs.close()
        try:
            yield process, ends
        finally:
            process.signal(signal.SIGKILL)


async def _terminal(wanted: Wanted, theirs: ExitStack) -> tuple[Stdio, Ends]:
    master, slave = os.openpty()
    theirs.callback(os.close, slave)
    reader, writer = await _reader(os.dup(master)), await _writer(os.dup(master))
    return Stdio(slave, slave, slave, tty=True), Ends(((STDOUT, reader),), writer, master)


async def _pipes(wanted: Wanted, theirs: ExitStack) -> tuple[Stdio, Ends]:
    stdin = writer = None
    if wanted.stdin:
        stdin, writing = os.pipe()
        theirs.callback(os.close, stdin)
        writer = await _writer(writing)
    given: dict[int, int] = {}
    outputs = []
    for channel, asked in ((STDOUT, wanted.stdout), (STDERR, wanted.stderr)):
        if asked:
            reader, given[channel] = await output_pipe()
            theirs.callback(os.close, given[channel])
            outputs.append((channel, reader))
    return Stdio(stdin, given.get(STDOUT), given.get(STDERR)), Ends(tuple(outputs), writer)


async def _listen(socket: web.WebSocketResponse, process: Process, ends: Ends) -> None:
    """What the client says; when it leaves, the program is killed."""
    async for message in socket:
        data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
        if not isinstance(data, bytes) or not data:
            continue
        match data[0]:
            case 0 if ends.stdin and not ends.stdin.is_closing():
                with suppress(ConnectionError):
                    ends.stdin.write(data[1:])
                    await ends.stdin.drain()
            case 4 if ends.terminal is not None:
                _resize(ends.terminal, data[1:])
            case 255 if data[1:2] == bytes([STDIN]) and ends.stdin and ends.terminal is None:
                ends.stdin.close()
    process.signal(signal.SIGKILL)


async def _speak(socket: web.WebSocketResponse, channel: int, reader: asyncio.StreamReader) -> None:
    with suppress(OSError):  # EIO: the last process with this terminal has ended; or the client has left
        while data := await reader.read(CHUNK):
            await socket.send_bytes(bytes([channel]) + data)


def _resize(terminal: int, data: bytes) -> None:
    try:
        size = json.loads(data)
        rows, columns = int(size["Height"]), int(size["Width"])
        packed = struct.pack("HHHH", rows, columns, 0, 0)
    except (ValueError, KeyError, TypeError, struct.error):
        return
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)


async def _reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(fd, "rb", buffering=0))
    return reader


async def _writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(fd, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
