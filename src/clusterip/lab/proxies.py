"""What the proxy of a node says of itself, on its own loopback inside the node's namespace."""

import asyncio
import json
import os
import socket

from clusterip.errors import ClusterIPError
from clusterip.kernel import netns
from clusterip.lab.plan import METRICS_PORT, Plan
from clusterip.model.status import Object

TIMEOUT = 3.0  # seconds a proxy may take to answer


async def proxy_status(plan: Plan, node: str) -> tuple[Object, str]:
    """What the proxy of `node` says of itself, or why it does not."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _get_inside(plan.netns(node), METRICS_PORT, "/status"), ""
    except TimeoutError:
        return {}, "it does not answer"
    except OSError as error:
        return {}, os.strerror(error.errno) if error.errno else str(error)
    except (ClusterIPError, ValueError) as error:
        return {}, str(error)


async def _get_inside(namespace: str, port: int, path: str) -> Object:
    """GET from a server on a namespace's own loopback. The socket stays where it was opened."""
    with netns.inside(namespace):
        link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=link)
    except BaseException:
        link.close()
        raise
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    first = head.partition(b"\r\n")[0]
    if b" 200 " not in first:
        raise ValueError(f"it answers {first.decode(errors='replace')}")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("it does not answer with an object")
    return document


def follows(status: Object, kind: str, revision: int) -> bool:
    """All of a kind up to `revision` is in the node's kernel."""
    return (
        bool(status.get("lastSync"))
        and status.get("revisions", {}).get(kind, 0) >= revision
        and not status.get("pending")
    )
