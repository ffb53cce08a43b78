"""What the benchmarks stand on: an API server, controllers and a proxy in a network namespace of their own.

Services and their slices are written through the API, as anybody would; the rules go into that namespace's kernel.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.dataplane.ebpf import attach
from clusterip.dataplane.ebpf.layout import Frontend, frontend_key
from clusterip.errors import ClusterIPError
from clusterip.kernel import bpf, cgroup, links, netns
from clusterip.kernel.iptables import nft_generation
from clusterip.model.objects import Service
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES
from clusterip.model.status import Object

BACKENDS = 10
CLUSTERIP = shutil.which("clusterip", path=str(Path(sys.executable).parent)) or "clusterip"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: bench
clusters: [{name: bench, cluster: {server: "http://127.0.0.1:6443"}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
users: [{name: bench, user: {token: bench}}]
"""

PROXY = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {mode}
clientConnection: {{kubeconfig: {kubeconfig}}}
clusterCIDR: 10.244.0.0/16
hostnameOverride: node-1
bindAddress: 127.0.0.1
iptables: {{minSyncPeriod: 1ms}}
nftables: {{minSyncPeriod: 1ms}}
ebpf: {{cgroup: "{cgroup}", directory: "{directory}"}}
"""


@dataclass(frozen=True, slots=True)
class Stand:
    name: str  # of the namespace
    folder: Path
    port: int  # of the API server, on this machine's loopback
    processes: dict[str, "subprocess.Popen[bytes]"]

    def memory(self, component: str) -> float:
        """MiB that are resident now."""
        status = Path(f"/proc/{self.processes[component].pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def generation(self) -> int:
        """Grows with every change of packets' rules."""
        return nft_generation(self.name)

    def seen(self, address: str) -> object:
        """Is another when the kernel has another backend for port 80 of this address: in eBPF mode what the sockets
        are told, else the generation of the rules."""
        folder = next(self.sockets.glob("maps-*"), None)
        held = bpf.pinned_map(folder / "services", "services") if folder else None
        if held is None:
            return self.generation()
        with held:
            return held.get(frontend_key(Frontend(address, 80, "TCP")))

    @property
    def sockets(self) -> Path:
        """Where a proxy in eBPF mode pins its maps."""
        return self.folder / "bpf"


@contextlib.asynccontextmanager
async def stand(components: Sequence[str] = ("proxy",), mode: str = "iptables") -> AsyncIterator[Stand]:
    """An API server, and `components` when it answers. `mode`: of the proxy."""
    name = f"clusterip-bench-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    folder = Path(tempfile.mkdtemp(prefix="clusterip-bench-"))
    netns.create(name)
    group = cgroup.mount_point() / name if mode == "ebpf" else Path()
    # Two sockets, as in the laboratory: the benchmark asks over this machine's loopback, the components over theirs.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = Stand(name, folder, listening.getsockname()[1], {})
        try:
            if mode == "ebpf":
                cgroup.create(group)
            await links.configure(name, links.up("lo"))
            (folder / "tokens").write_text("bench,bench,system:masters\n")
            (folder / "kubeconfig").write_text(KUBECONFIG)
            (folder / "proxy.yaml").write_text(
                PROXY.format(kubeconfig=folder / "kubeconfig", mode=mode, cgroup=group, directory=made.sockets)
            )
            fd = listening.fileno()
            options = ["--data-dir", str(folder), "--token-auth-file", str(folder / "tokens"), "--listen-fd", str(fd)]
            start(made, "apiserver", *options, "--listen", "127.0.0.1:6443", fds=(fd,))
            await answers(made)
            async with api(made) as client:  # a proxy waits for its Node
                addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
                await client.create(NODES, "", {"metadata": {"name": "node-1"}, "status": {"addresses": addresses}})
            kubeconfig = ["--kubeconfig", str(folder / "kubeconfig")]
            for component in components:
                options = ["--config", str(folder / "proxy.yaml")]
                start(made, component, *(options if component == "proxy" else kubeconfig))
            yield made
        finally:
            for process in reversed(made.processes.values()):
                process.terminate()
                process.wait(30)
            attach.remove(made.sockets)
            if mode == "ebpf":
                cgroup.delete(group)
            netns.delete(name)
            shutil.rmtree(folder)


def start(made: Stand, component: str, *options: str, fds: tuple[int, ...] = ()) -> None:
    argv = ["nsenter", f"--net={netns.path(made.name)}", CLUSTERIP, component, *options]
    with (made.folder / f"{component}.log").open("wb") as log:
        made.processes[component] = subprocess.Popen(argv, stdout=log, stderr=log, pass_fds=fds)


def api(made: Stand) -> Api:
    return Api(Connection(server=f"http://127.0.0.1:{made.port}", token="bench"))


async def answers(made: Stand) -> None:
    for _ in range(200):
        with contextlib.suppress(ClusterIPError):
            async with api(made) as client:
                await client.get(SERVICES, "default", "kubernetes", Service)
                return
        await asyncio.sleep(0.05)
    sys.exit(f"the API server does not answer:\n{(made.folder / 'apiserver.log').read_text()[-2000:]}")


def manifest(i: int) -> tuple[Object, Object]:
    """Service i and its slice of ten backends."""
    service: Object = {
        "metadata": {"name": f"svc-{i:05}", "namespace": "default"},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }
    return service, slice_of(i, 0)


def slice_of(i: int, turn: int) -> Object:
    """Every turn has another first backend: that is the change that is measured."""
    addresses = [f"10.{200 + i // 5000}.{i % 5000 // 20}.{1 + i % 20 * 12 + k}" for k in range(BACKENDS)]
    addresses[0] = f"10.244.{turn // 250 % 250}.{1 + turn % 250}"
    return {
        "addressType": "IPv4",
        "metadata": {
            "name": f"svc-{i:05}-x",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": f"svc-{i:05}"},
        },
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [a], "conditions": {"ready": True}, "nodeName": "node-1"} for a in addresses],
    }


async def fill(client: Api, numbers: Iterable[int]) -> None:
    async def one(i: int) -> None:
        service, its_slice = manifest(i)
        async with gate:
            await client.create(SERVICES, "default", service)
            await client.create(ENDPOINT_SLICES, "default", its_slice)

    gate = asyncio.Semaphore(16)
    async with asyncio.TaskGroup() as tasks:
        for i in numbers:
            tasks.create_task(one(i))


async def quiet(made: Stand, seconds: float, most: float = 900) -> float:
    """Waits until the kernel's rules have not changed for `seconds`; when the last change was seen (monotonic)."""
    seen, since = made.generation(), time.monotonic()
    end = since + most
    while time.monotonic() - since < seconds:
        await asyncio.sleep(0.05)
        if (now := made.generation()) != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() > end:
            sys.exit("the rules do not come to rest")
    return since


def summary(values: Sequence[float]) -> str:
    """Milliseconds: median, 99th percentile."""
    ordered = sorted(values)
    return f"p50 {statistics.median(ordered):7.1f} ms   p99 {ordered[int(len(ordered) * 0.99)]:7.1f} ms"
