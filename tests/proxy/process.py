"""`clusterip proxy` as a process in a node's namespace, against a fake API server, and what tests ask of it."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.client.fake_apiserver import FakeApiServer
from tests.proxy.running import node_object
from tests.proxy.world import NODE, World

from clusterip.kernel import netns as namespaces
from clusterip.kernel.run import run
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES, Resource
from clusterip.model.status import Object


@dataclass
class Proxy:
    net: World
    server: FakeApiServer
    process: asyncio.subprocess.Process
    config: Path

    async def get(self, path: str, port: int = 10249) -> tuple[int, str]:
        argv = ("curl", "-s", "-m", "5", "-w", "\n%{http_code}", f"http://127.0.0.1:{port}{path}")
        done = await run(argv, netns=self.net.node, check=False)
        body, _, code = done.stdout.decode().rpartition("\n")
        return int(code), body

    async def status(self) -> Any:
        code, body = await self.get("/status")
        return json.loads(body) if code == 200 else {}

    async def put(self, *objects: Object) -> None:
        for obj in objects:
            await self.server.put({"Service": SERVICES, "EndpointSlice": ENDPOINT_SLICES}[obj["kind"]], obj)
            async with asyncio.timeout(15):  # one by one: each kind has a watch of its own
                while int((await self.status()).get("revision") or 0) < self.server.revision:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


def node_here() -> Object:
    node = node_object()
    node["status"] = {"addresses": [{"type": "InternalIP", "address": NODE}]}
    return node


def kubeconfig(path: Path, url: str) -> Path:
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    path.write_text(json.dumps({**document, "current-context": "x"}))
    return path


async def start(netns: str, *argv: str, first: str = "") -> asyncio.subprocess.Process:
    """`clusterip proxy`; `first` is Python that runs before it."""
    main = f"{first}from clusterip.cli.main import main; main()"
    command = ("nsenter", f"--net=/run/netns/{netns}", "--", sys.executable, "-c", main, "proxy", *argv)
    return await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextlib.asynccontextmanager
async def relayed(netns: str, url: str) -> AsyncIterator[str]:
    """The fake server's address inside the namespace, which has no way to the machine's own."""
    host, _, port = url.removeprefix("http://").partition(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    with namespaces.inside(netns):
        listener = socket.create_server(("127.0.0.1", 0))
    async with await asyncio.start_server(relay, sock=listener) as relaying:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        relaying.close()


@contextlib.asynccontextmanager
async def proxying(
    net: World, folder: Path, template: str, *others: tuple[Resource, Object], first: str = ""
) -> AsyncIterator[Proxy]:
    """Once it has written its first rules. `template`: its configuration, %s for the kubeconfig; `others`: what the API
    holds besides the node."""
    async with FakeApiServer() as server, relayed(net.node, server.url) as url:
        for resource, obj in ((NODES, node_here()), *others):
            await server.put(resource, obj)
        config = folder / "proxy.yaml"
        config.write_text(template % kubeconfig(folder / "kubeconfig", url))
        process = await start(net.node, "--config", str(config), first=first)
        made = Proxy(net, server, process, config)
        try:
            async with asyncio.timeout(90):
                while not (await made.status()).get("syncs"):
                    assert process.returncode is None, (await process.communicate())[1].decode()
                    await asyncio.sleep(0.05)
            yield made
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def cleaned(net: World) -> None:
    process = await start(net.node, "--cleanup")
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
