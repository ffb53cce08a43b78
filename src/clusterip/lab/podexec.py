"""`exec` in a pod, over the API, as kubectl does it: one WebSocket, the first byte of each message names a channel.

Source: Kubernetes, subprotocol v5.channel.k8s.io.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import aiohttp

from clusterip.client import tls
from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.model.objects import Pod
from clusterip.model.resources import PODS
from clusterip.model.status import ApiError

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOL = "v5.channel.k8s.io"
CHUNK = 32768  # bytes of standard input per message


@dataclass(frozen=True, slots=True)
class Command:
    namespace: str
    pod: str
    argv: tuple[str, ...]
    container: str = ""  # "": the pod's first
    stdin: bool = False
    tty: bool = False

    @property
    def where(self) -> str:
        return f"{self.namespace}/{self.pod}"

    def query(self) -> list[tuple[str, str]]:
        flags = {"stdin": self.stdin, "stdout": True, "stderr": not self.tty, "tty": self.tty}
        return [
            *(("command", word) for word in self.argv),
            *([("container", self.container)] if self.container else []),
            *((name, "true") for name, wanted in flags.items() if wanted),
        ]


class ExecFailed(ClusterIPError):
    """The command was not run, or its end was not told."""


async def execute(connection: Connection, command: Command) -> int:
    """Runs it with our own standard streams; its exit status. Raises ExecFailed, Unavailable."""
    headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        try:
            try:
                socket = await _begin(session, connection, command)
            except aiohttp.WSServerHandshakeError as error:
                # To look the pod up first would cost everybody a request; only pods of several containers need it.
                socket = await _begin(session, connection, await _chosen(connection, command, error.status))
        except aiohttp.WSServerHandshakeError as error:
            raise ExecFailed(f"pod {command.where}: the API server refuses with {error.status}") from error
        except aiohttp.ClientError as error:
            raise Unavailable(f"API server {connection.server}: {error}", hint="clusterip status") from error
        async with socket:
            return await _converse(socket, command)


async def _begin(
    session: aiohttp.ClientSession, connection: Connection, command: Command
) -> aiohttp.ClientWebSocketResponse:
    url = f"{connection.server}/api/v1/namespaces/{command.namespace}/pods/{command.pod}/exec"
    return await session.ws_connect(
        url, params=command.query(), protocols=(PROTOCOL,), ssl=tls.context(connection), max_msg_size=0
    )


async def _chosen(connection: Connection, command: Command, code: int) -> Command:
    """The command in the pod's first container, if the server would not begin because none was named. Raises
    ExecFailed with what else it may be: a refused WebSocket has no body that says so."""
    async with Api(connection) as api:
        try:
            pod = await api.get(PODS, command.namespace, command.pod, Pod)
        except ApiError as error:
            hint = f"kubectl get pods -n {command.namespace}"
            raise ExecFailed(f"pod {command.where}: {error.message}", hint) from None
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    if command.container and command.container not in names:
        raise ExecFailed(f"pod {command.where}: has no container {command.container}", f"it has: {', '.join(names)}")
    if pod.status.phase == "Running" and not command.container and len(names) > 1:
        return replace(command, container=names[0])
    hint = f"kubectl describe pod -n {command.namespace} {command.pod}"
    raise ExecFailed(f"pod {command.where}: is {pod.status.phase}, the API server refuses with {code}", hint)


async def _converse(socket: aiohttp.ClientWebSocketResponse, command: Command) -> int:
    with _raw_terminal(command.tty), _told_of_resizing(socket, command.tty):
        sending = asyncio.create_task(_send_input(socket)) if command.stdin else None
        try:
            return await _receive(socket)
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


async def _receive(socket: aiohttp.ClientWebSocketResponse) -> int:
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == STDOUT:
            _write(1, data)
        elif channel == STDERR:
            _write(2, data)
        elif channel == ERROR:
            return exit_status(data)
    raise ExecFailed("the connection ended before the command did", hint="clusterip status")


def exit_status(status: bytes) -> int:
    """From the `Status` that ends the conversation. Raises ExecFailed if the command was not run."""
    try:
        document = json.loads(status)
        if document.get("status") == "Success":
            return 0
        causes = (document.get("details") or {}).get("causes") or []
        codes = [int(c["message"]) for c in causes if c.get("reason") == "ExitCode"]
        message = str(document.get("message", ""))
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ExecFailed(f"the end of the command cannot be read: {status[:200]!r}") from error
    if codes:
        return codes[0]
    raise ExecFailed(message or "the command was not run")


def _write(fd: int, data: bytes) -> None:
    """All of it, also to a full pipe: nobody but us waits here."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def _send_input(socket: aiohttp.ClientWebSocketResponse) -> None:
    async for data in _input():
        await socket.send_bytes(bytes([STDIN]) + data)
    await socket.send_bytes(bytes([CLOSE, STDIN]))


async def _input() -> AsyncIterator[bytes]:
    """Our standard input, whatever it is: event loops wait for pipes and terminals, not for files."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(0, readable.set)
        waits = True
    except PermissionError:
        waits = False
    try:
        while True:
            if waits:
                await readable.wait()
                readable.clear()
                if not select.select([0], [], [], 0)[0]:  # told twice of the same; a read would block
                    continue
            data = os.read(0, CHUNK)
            if not data:
                return
            yield data
    finally:
        if waits:
            loop.remove_reader(0)


@contextlib.contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """Keys go to the command, not to our own terminal's line editor."""
    if not (wanted and sys.stdin.isatty()):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _told_of_resizing(socket: aiohttp.ClientWebSocketResponse, wanted: bool) -> Iterator[None]:
    if not (wanted and sys.stdout.isatty()):
        yield
        return
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def tell() -> None:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
        size = json.dumps({"Width": columns, "Height": rows}).encode()
        task = loop.create_task(socket.send_bytes(bytes([RESIZE]) + size))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    tell()
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
