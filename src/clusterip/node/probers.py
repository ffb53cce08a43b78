"""One probe: ask, and say what came of it. What a row of results means is `node.probe`'s matter."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import aiohttp

from clusterip.model.objects import Container, HTTPGetAction, Probe, TCPSocketAction
from clusterip.node.beside import Result

USER_AGENT = "kube-probe/1.36"
SHOWN = 300  # characters of an answer that an event shows


@dataclass(frozen=True, slots=True)
class Target:
    """Where a container's probes go."""

    address: str  # the pod's
    ports: Mapping[str, int]  # its named ports
    execute: Callable[[tuple[str, ...]], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Outcome:
    ok: bool
    message: str = ""  # why not


def named_ports(container: Container) -> dict[str, int]:
    return {port.name: port.container_port for port in container.ports if port.name}


def probe_session() -> aiohttp.ClientSession:
    """A connection for each probe: a server that no longer accepts any is not alive. Certificates are not checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connector = aiohttp.TCPConnector(force_close=True, limit=0, ssl=context)
    return aiohttp.ClientSession(connector=connector, trust_env=False, headers={"User-Agent": USER_AGENT})


async def ask(session: aiohttp.ClientSession, probe: Probe, target: Target) -> Outcome:
    """Within the probe's timeout. A probe of a kind we do not know succeeds, like one that asks nothing."""
    try:
        async with asyncio.timeout(max(probe.timeout_seconds, 1)):
            if probe.http_get:
                return await http_get(session, probe.http_get, target)
            if probe.tcp_socket:
                return await _tcp(probe.tcp_socket, target)
            if probe.exec:
                result = await target.execute(probe.exec.command)
                return Outcome(result.code == 0, result.output[:SHOWN] or f"exit status {result.code}")
    except TimeoutError:
        return Outcome(False, f"no answer within {max(probe.timeout_seconds, 1)} s")
    return Outcome(True)


async def http_get(session: aiohttp.ClientSession, action: HTTPGetAction, target: Target) -> Outcome:
    """A status from 200 to 399 is a success; nothing is followed. Takes as long as it takes, or raises TimeoutError."""
    port = _port(action.port, target)
    if port is None:
        return Outcome(False, f"no port of the container is named {action.port!r}")
    host = action.host or target.address
    path = action.path if action.path.startswith("/") else f"/{action.path}"
    url = f"{action.scheme.lower() or 'http'}://{f'[{host}]' if ':' in host else host}:{port}{path}"
    headers = {header.name: header.value for header in action.http_headers}
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            if 200 <= answer.status < 400:
                return Outcome(True)
            return Outcome(False, f"HTTP probe failed with statuscode: {answer.status}")
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Outcome(False, f'Get "{url}": {_why(error)}')


async def _tcp(action: TCPSocketAction, target: Target) -> Outcome:
    port = _port(action.port, target)
    if port is None:
        return Outcome(False, f"no port of the container is named {action.port!r}")
    try:
        _, writer = await asyncio.open_connection(action.host or target.address, port)
    except TimeoutError:
        raise
    except OSError as error:
        return Outcome(False, f"dial tcp {action.host or target.address}:{port}: {_why(error)}")
    writer.close()
    return Outcome(True)


def _why(error: Exception) -> str:
    """The kernel's own word where there is one: "Connection refused"."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _port(port: int | str, target: Target) -> int | None:
    if isinstance(port, int):
        return port
    return int(port) if port.isdecimal() else target.ports.get(port)
