"""A real API server and a real node agent in a network namespace of their own; no scheduler: pods name their node."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from clusterip.client import tls
from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.errors import Unavailable
from clusterip.kernel import netns
from clusterip.lab.certificates import Authority
from clusterip.model.objects import Condition, ContainerStatus, Node, Pod
from clusterip.model.resources import NAMESPACES, NODES, PODS
from clusterip.model.status import ApiError, Object

NODE, NODE_IPS, API_IP = "node-1", ("192.168.50.11", "fd00:50::11"), "192.168.50.1"
NODE_IP = NODE_IPS[0]
PROGRAM = (sys.executable, "-m", "clusterip")

KUBECONFIG = """\
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "https://{API_IP}:6443", certificate-authority: {ca}}}}}]
users: [{{name: u, user: {{token: secret}}}}]
"""


_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace"}


@dataclass(slots=True)
class OneNode:
    directory: Path
    space: str  # its network namespace
    prefix: str  # of its pods' network namespaces
    connection: Connection
    server: subprocess.Popen[bytes]
    agent: subprocess.Popen[bytes] = field(init=False)

    def start_agent(self) -> None:
        files = {name: str(self.directory / name) for name in ("kubeconfig", "node.crt", "node.key", "token", "images")}
        argv = (
            *PROGRAM,
            "node",
            *("--kubeconfig", files["kubeconfig"], "--node-name", NODE, "--node-ip", ",".join(NODE_IPS)),
            *(
                "--pod-cidr",
                "10.244.1.0/24,fd00:1:1::/64",
                "--state-dir",
                str(self.directory / "state"),
                "--images",
                files["images"],
            ),
            *("--tls-cert-file", files["node.crt"], "--tls-private-key-file", files["node.key"]),
            *("--token-file", files["token"], "--netns-prefix", self.prefix, "--node-labels", "zone=a,disk="),
        )
        with open(self.directory / "agent.log", "ab") as output:
            self.agent = subprocess.Popen(("nsenter", f"--net={netns.path(self.space)}", *argv), stderr=output)

    def stop_agent(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.agent.send_signal(number)
        return self.agent.wait(10)

    def networks(self) -> list[str]:
        return [name for name in netns.names() if name.startswith(self.prefix)]

    def processes(self) -> list[str]:
        """Command lines of what runs in the pods' networks or for them."""
        places = {netns.path(name).stat().st_ino for name in self.networks()}
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "ns" / "net").stat().st_ino in places:
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    def log(self) -> str:
        return (self.directory / "agent.log").read_text()


def _files(directory: Path) -> Authority:
    authority = Authority("test")
    (directory / "ca.crt").write_bytes(authority.certificate)
    for name, reached in (("api", (API_IP, "127.0.0.1")), ("node", (NODE, *NODE_IPS))):
        pair = authority.serving(name, reached)
        (directory / f"{name}.crt").write_bytes(pair.certificate)
        (directory / f"{name}.key").write_bytes(pair.key)
    (directory / "tokens").write_text("secret,admin,system:masters\n")
    (directory / "token").write_text("agent-secret\n")
    (directory / "images").write_text("greeter: {argv: [echo], args: [hello], env: {MOOD: good}}\n")
    (directory / "kubeconfig").write_text(KUBECONFIG.format(API_IP=API_IP, ca=directory / "ca.crt"))
    return authority


def _run_lines(space: str) -> None:
    """The node's own link: a bridge without ports holds its addresses."""
    lines = (
        *("link set lo up", "link add eth0 type bridge", "link set eth0 up"),
        *(f"address add {address}/24 dev eth0" for address in (NODE_IP, API_IP)),
        f"address add {NODE_IPS[1]}/64 dev eth0 nodad",
    )
    subprocess.run(("ip", "-n", space, "-batch", "-"), input="\n".join(lines).encode(), check=True)


def one_node(directory: Path) -> Iterator[OneNode]:
    tag = uuid.uuid4().hex[:6]
    space = f"t{tag}"
    _files(directory)
    netns.create(space)
    _run_lines(space)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        options = (
            *("--store", "memory", "--listen-fd", str(fd), "--listen", f"{API_IP}:6443"),
            *("--tls-cert-file", str(directory / "api.crt"), "--tls-private-key-file", str(directory / "api.key")),
            *("--token-auth-file", str(directory / "tokens"), "--kubelet-ca-file", str(directory / "ca.crt")),
            *("--kubelet-token-file", str(directory / "token")),
        )
        with open(directory / "api.log", "wb") as output:
            entered = ("nsenter", f"--net={netns.path(space)}", *PROGRAM, "apiserver", *options)
            server = subprocess.Popen(entered, pass_fds=(fd,), stderr=output)
    connection = Connection(f"https://127.0.0.1:{port}", token="secret", ca_file=str(directory / "ca.crt"))
    node = OneNode(directory, space, f"t{tag}.", connection, server)
    node.start_agent()
    try:
        yield node
        assert node.stop_agent() == 0, node.log()
        assert node.networks() == []
        assert "Traceback" not in node.log()
    finally:
        for process in (node.agent, server):
            process.kill()
            process.wait()
        for name in (*node.networks(), space):
            netns.delete(name)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A Kubernetes namespace on the node, and what tests do there."""

    node: OneNode
    api: Api
    namespace: str

    async def create(self, name: str, *containers: Object, **spec: Any) -> None:
        await self.api.create(PODS, self.namespace, manifest(name, *containers, **spec))

    async def pod(self, name: str) -> Pod:
        return await self.api.get(PODS, self.namespace, name, Pod)

    async def until(self, name: str, holds: Callable[[Pod], bool], seconds: float = 15.0) -> Pod:
        """The pod, once that is true of it."""
        deadline = time.monotonic() + seconds
        while True:
            pod = await self.pod(name)
            if holds(pod):
                return pod
            assert time.monotonic() < deadline, f"{pod.status}\n{self.node.log()[-3000:]}"
            await asyncio.sleep(0.02)

    async def ready(self, name: str) -> Pod:
        return await self.until(name, is_ready)

    async def gone(self, name: str, seconds: float = 15.0) -> None:
        async def is_gone() -> bool:
            try:
                await self.pod(name)
            except ApiError as error:
                return error.code == 404
            return False

        await eventually(is_gone, seconds)

    def url(self, name: str, subresource: str) -> str:
        return f"{self.node.connection.server}/api/v1/namespaces/{self.namespace}/pods/{name}/{subresource}"

    async def logs(self, name: str, **query: str) -> tuple[int, str]:
        async with (
            session(self.node) as http,
            http.get(self.url(name, "log"), params=query, ssl=tls.context(self.node.connection)) as answer,
        ):
            return answer.status, await answer.text()


def session(node: OneNode) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {node.connection.token}"})


@asynccontextmanager
async def tenant(node: OneNode) -> AsyncIterator[Tenant]:
    """Its pods are gone in the end, each within its time."""
    async with Api(node.connection) as api:
        found = Tenant(node, api, f"t{uuid.uuid4().hex[:8]}")

        async def created() -> bool:
            try:
                await api.create(NAMESPACES, "", {"metadata": {"name": found.namespace}, **_NAMESPACE})
            except Unavailable:
                return False  # the server has just been started
            return True

        async def reached() -> bool:
            """Logs and commands are asked for at the node's address, which the agent tells after it has begun."""
            nodes = (await api.list(NODES, Node)).items
            return any(node.status.addresses for node in nodes)

        await eventually(created, 20)
        await eventually(reached, 20)
        yield found
        for pod in (await api.list(PODS, Pod, found.namespace)).items:
            await api.delete(PODS, found.namespace, pod.metadata.name, grace_seconds=0)


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        await asyncio.sleep(0.02)


def manifest(name: str, *containers: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {"note": "a b"}},
        "spec": {"nodeName": NODE, "containers": list(containers), "terminationGracePeriodSeconds": 5, **spec},
    }


def shell(script: str, name: str = "c", **more: Any) -> Object:
    return {"name": name, "image": "shell", "command": ["sh", "-c", script], **more}


def echo(name: str = "web", **more: Any) -> Object:
    return {"name": name, "image": "clusterip/echo", **more}


def condition(pod: Pod, kind: str = "Ready") -> Condition:
    return next((c for c in pod.status.conditions if c.type == kind), Condition(type=kind))


def is_ready(pod: Pod) -> bool:
    return condition(pod).status == "True"


def container(pod: Pod, name: str = "c") -> ContainerStatus:
    every = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((s for s in every if s.name == name), ContainerStatus(name=name))


def connect(space: str, address: str, port: int = 8080) -> socket.socket:
    """A connection from inside a network namespace."""
    with netns.inside(space):
        client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        client.settimeout(5)
        client.connect((address, port))
    except BaseException:
        client.close()
        raise
    return client


def ask(space: str, address: str, path: str, method: str = "GET") -> tuple[int, str]:
    with connect(space, address) as client:
        client.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        said = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    head, _, body = said.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body.strip()


def network(here: Tenant, name: str) -> str:
    """The pod's network namespace."""
    (found,) = [one for one in here.node.networks() if f"-{here.namespace}-{name}-" in one]
    return found


async def answers(space: str, address: str) -> bool:
    try:
        return (await asyncio.to_thread(ask, space, address, "/healthz"))[0] == 200
    except OSError:
        return False


async def no_network(here: Tenant, name: str) -> bool:
    return not any(f"-{here.namespace}-{name}-" in one for one in here.node.networks())


async def one_network(here: Tenant, name: str) -> bool:
    return sum(f"-{here.namespace}-{name}-" in one for one in here.node.networks()) == 1


async def no_processes(here: Tenant) -> bool:
    return here.node.processes() == []
