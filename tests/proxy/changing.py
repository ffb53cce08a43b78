"""A proxy that changes its dataplane while it serves, under load."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.client.fake_apiserver import FakeApiServer
from tests.proxy.process import Proxy, kubeconfig, node_here, relayed, start
from tests.proxy.running import service, slice_of
from tests.proxy.world import NODE, OUTSIDE, POD_A, POD_B, World

from clusterip.errors import Unavailable
from clusterip.kernel import cgroup, mounts
from clusterip.kernel import netns as namespaces
from clusterip.lab.cgroups import born_in
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES

VIP, NODE_PORT, PORT = "10.96.0.10", 30080, 8080
PATIENCE = 600  # seconds: a guest without KVM is slow to start a program

CONFIG = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %(mode)s
hostnameOverride: node-1
clusterCIDR: 10.244.0.0/16
clientConnection: {kubeconfig: %(kubeconfig)s}
iptables: {minSyncPeriod: 10ms}
nftables: {minSyncPeriod: 10ms}
ebpf: {cgroup: %(cgroup)s, directory: %(directory)s}
"""


@dataclass
class Changing:
    proxy: Proxy
    folder: Path
    group: Path
    text: str  # of the configuration, with a place for the mode

    async def get(self, path: str, port: int = 10249) -> tuple[int, str]:
        """As `Proxy.get`, without a program: a guest needs a tenth of a second to start one."""
        with namespaces.inside(self.proxy.net.node):
            made = socket.socket()
        made.setblocking(False)
        try:
            async with asyncio.timeout(60):
                await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
                reader, writer = await asyncio.open_connection(sock=made)
                with contextlib.closing(writer):
                    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        except OSError:
            made.close()
            return 0, ""
        return int(head.split()[1]), body.decode()

    async def status(self) -> Any:
        code, body = await self.get("/status")
        return json.loads(body) if code == 200 else {}

    @property
    def config(self) -> Path:
        return self.proxy.config

    def write(self, mode: str) -> None:
        draft = self.folder / "draft.yaml"
        draft.write_text(self.text.replace("MODE", mode))
        draft.replace(self.config)

    async def change(self, mode: str, *, by_signal: bool = True) -> Any:
        """What the proxy says of it in the end."""
        number = ((await self.status())["change"] or {"number": 0})["number"]
        self.write(mode)
        if by_signal:
            self.proxy.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while True:
                assert (await self.get("/healthz", 10256))[0] == 200, "it is well all the time"
                said = (await self.status()).get("change") or {"number": 0}
                if said["number"] > number and said["phase"] in ("done", "failed"):
                    return said
                await asyncio.sleep(0.2)

    async def arrives(self, mode: str) -> Any:
        """When what lies on the way to it is behind. What the proxy says of the last step."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.status()
                if found.get("mode") == mode and found["change"]["phase"] == "done":
                    return found["change"]
                await asyncio.sleep(0.5)

    async def gone(self) -> None:
        """Nothing is left of any other mode."""
        async with asyncio.timeout(300):
            while (await self.status())["left"]:  # noqa: ASYNC110
                await asyncio.sleep(1)


class Load:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, what: str, **more: int) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(900):
            line = await self._process.stdout.readline()
        assert line, "the load ended"
        return json.loads(line)

    async def at(self, requests: int) -> None:
        while (await self.do("count"))["requests"] < requests:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def group(folder: Path) -> Iterator[Path]:
    """A cgroup of our own, for the processes whose sockets eBPF mode serves."""
    with contextlib.ExitStack() as stack:
        try:
            root = cgroup.mount_point()
        except Unavailable:
            root = folder / "cgroup2"
            root.mkdir()
            mounts.file_system("cgroup2", str(root))
            stack.callback(mounts.unmount, str(root))
        made = root / f"change-{uuid.uuid4().hex[:6]}"
        cgroup.create(made)
        stack.callback(cgroup.delete, made)
        yield made


@contextlib.asynccontextmanager
async def changing(net: World, folder: Path, mode: str) -> AsyncIterator[Changing]:
    """The whole command, with a Service that two pods serve at a ClusterIP and a node port."""
    with group(folder) as made:
        async with FakeApiServer() as server, relayed(net.node, server.url) as url:
            await server.put(NODES, node_here())
            known = {"kubeconfig": kubeconfig(folder / "kubeconfig", url), "cgroup": made, "directory": folder / "bpf"}
            text = CONFIG % {"mode": "MODE", **known}
            config = folder / "proxy.yaml"
            config.write_text(text.replace("MODE", mode))
            process = await start(net.node, "--config", str(config))
            said: list[bytes] = []
            assert process.stderr is not None
            reading = asyncio.create_task(_keep(process.stderr, said))
            found = Changing(Proxy(net, server, process, config), folder, made, text)
            try:
                async with asyncio.timeout(PATIENCE):
                    while not (await found.status()).get("syncs"):
                        assert process.returncode is None, b"".join(said).decode()
                        await asyncio.sleep(0.5)
                await server.put(SERVICES, service(type="NodePort", node_port=NODE_PORT))
                await server.put(ENDPOINT_SLICES, slice_of("web", POD_A, POD_B))
                async with asyncio.timeout(PATIENCE):
                    while int((await found.status()).get("revision") or 0) < server.revision:  # noqa: ASYNC110
                        await asyncio.sleep(0.5)
                yield found
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()
                await reading
                print(b"".join(said).decode())  # noqa: T201  pytest shows it where a test fails
                cleaning = await start(net.node, "--config", str(config), "--cleanup")
                await cleaning.communicate()


async def _keep(pipe: asyncio.StreamReader, lines: list[bytes]) -> None:
    while line := await pipe.readline():
        lines.append(line)


@contextlib.asynccontextmanager
async def loading(net: World, group: Path) -> AsyncIterator[Load]:
    places = {
        "servers": [{"netns": net.pods[a], "address": a, "port": PORT} for a in (POD_A, POD_B)],
        "clients": [
            {"netns": net.pods[POD_A], "address": VIP, "port": 80},
            {"netns": net.node, "address": VIP, "port": 80},
            {"netns": net.pods[OUTSIDE], "address": NODE, "port": NODE_PORT},
        ],
    }
    argv = (*born_in(str(group)), sys.executable, "-m", "tests.proxy.load", json.dumps(places))
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, env={**os.environ})
    load = Load(process)
    try:
        await load.answer()
        yield load
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def change_under_load(
    found: Changing, load: Load, mode: str, *, requests: int, connections: int = 100, by_signal: bool = True
) -> Any:
    """Connections that were there before, and requests before, through and after the change. What became of them,
    and what the proxy says of the last step of the change: what waits for connections to end comes when ours have."""
    assert (await load.do("open", count=connections))["open"] == connections
    await load.do("begin")
    await load.at(requests // 10)
    first = await found.change(mode, by_signal=by_signal)
    assert (first["phase"], first["error"]) == ("done", "")
    await load.at(requests)
    closed = await load.do("close")
    # A client that comes back with the same ports all the time keeps IPVS' memory of them alive.
    await load.do("slow")
    said = await found.arrives(mode)
    there = (await load.do("count"))["requests"]
    return closed | await load.do("end", least=there + 10), said
