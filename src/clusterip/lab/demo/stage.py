"""The cluster as the steps use it: run a command where it belongs, read the API, wait for something to become so."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from clusterip.client.api import Api
from clusterip.errors import Unavailable
from clusterip.kernel.run import Completed, run
from clusterip.lab import processes
from clusterip.lab.demo import reading
from clusterip.lab.demo.values import Ran
from clusterip.lab.state import Identity
from clusterip.model import objects, resources
from clusterip.services.resolve import SERVICE_NAME_LABEL

T = TypeVar("T")

APP = "app"
PORT, POD_PORT = 80, 8080
FIELD = f"kubectl get service {APP} -o jsonpath='{{.spec.clusterIP}}'"
LOOK_EVERY = 0.01  # seconds between two looks while we wait


@dataclass(frozen=True, slots=True)
class Place:
    """A node or a pod, where commands can run and connections begin."""

    name: str  # "node-1", "client"
    netns: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod of the app."""

    name: str
    address: str
    node: str
    place: Place


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs, and how they find the cluster."""

    kubectl: str  # its path
    directory: Path  # where commands run; holds `kubeconfig`, whose default namespace is the demo's
    iptables: str  # "iptables", or the variant that the proxies write

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)


@dataclass(slots=True)  # not frozen: steps leave here what later ones build on
class Stage:
    """`address`, `chain` and `stale` are what earlier steps found and later ones build on."""

    api: Api
    namespace: str
    tools: Tools
    nodes: tuple[Place, ...]
    pod_netns: Callable[[objects.Pod], str]
    proxies: tuple[Identity, ...] = ()
    dns: str = "10.96.0.10"
    client: Place = field(default=Place("client", ""))  # a pod of ours that only asks
    address: str = ""  # the ClusterIP
    chain: str = ""  # its KUBE-SVC chain

    async def here(self, command: str, *, marks: Sequence[str] = (), only: Sequence[str] = ()) -> Ran:
        """Run it as a person would in this shell, with kubectl at hand."""
        path = os.pathsep.join((os.path.dirname(self.tools.kubectl), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
        variables = (f"--chdir={self.tools.directory}", "KUBECONFIG=kubeconfig", f"PATH={path}")
        done = await run(("env", *variables, "sh", "-c", command), check=False, timeout=30)
        return Ran("$", command, _said(done), done.returncode, tuple(marks), tuple(only))

    async def on(self, place: Place, command: str, *, marks: Sequence[str] = (), only: Sequence[str] = ()) -> Ran:
        """Run it in the network of a node or of a pod."""
        done = await run(("sh", "-c", command), netns=place.netns, check=False, timeout=30)
        return Ran(f"{place.name}#", command, _said(done), done.returncode, tuple(marks), tuple(only))

    async def backends(self) -> tuple[Backend, ...]:
        """The app's pods that are not on their way out, by name."""
        listed = await self.api.list(resources.PODS, objects.Pod, self.namespace, label_selector=f"app={APP}")
        staying = [pod for pod in listed.items if not pod.metadata.deletion_timestamp]
        return tuple(
            Backend(name, pod.status.pod_ip, pod.spec.node_name, Place(name, self.pod_netns(pod)))
            for pod in sorted(staying, key=lambda pod: pod.metadata.name)
            if (name := pod.metadata.name)
        )

    async def ready(self) -> frozenset[str]:
        """Addresses of the app's ready endpoints, by its slices."""
        listed = await self.api.list(
            resources.ENDPOINT_SLICES,
            objects.EndpointSlice,
            self.namespace,
            label_selector=f"{SERVICE_NAME_LABEL}={APP}",
        )
        return frozenset(
            endpoint.addresses[0]
            for piece in listed.items
            for endpoint in piece.endpoints or ()
            if endpoint.conditions.ready is not False
        )

    async def nat(self, node: Place, chain: str = "") -> str:
        """The rules of the node's nat table, or of one chain, as `iptables -S` lists them, with counters."""
        argv = (self.tools.iptables, "-w", "-t", "nat", "-v", "-S", *((chain,) if chain else ()))
        return (await run(argv, netns=node.netns, check=False)).stdout.decode(errors="replace")

    async def in_kernel(self, node: Place) -> frozenset[str]:
        """Addresses of the backends that this node's kernel sends to."""
        found = reading.backends(await self.nat(node), self.chain)
        return frozenset(backend.rsplit(":", 1)[0] for backend in found)

    async def until_ready(self, count: int, within: float = 30.0) -> frozenset[str]:
        """Wait until so many endpoints are ready, in the slices; gives their addresses. Raises Unavailable."""

        async def look() -> tuple[frozenset[str]] | None:
            ready = await self.ready()
            return (ready,) if len(ready) == count else None

        return (await until(f"{count} ready endpoints", look, within))[0]

    async def settled(self, count: int, within: float = 30.0) -> frozenset[str]:
        """The same, and wait until every node's kernel has just these."""
        ready = await self.until_ready(count, within)
        await self.programmed(ready)
        return ready

    async def until_running(self, name: str, within: float = 20.0) -> objects.Pod:
        """Wait until the pod has an address and runs. Raises Unavailable."""

        async def look() -> objects.Pod | None:
            pod = await self.api.get(resources.PODS, self.namespace, name, objects.Pod)
            return pod if pod.status.phase == "Running" and pod.status.pod_ip else None

        return await until(f"pod {name}", look, within)

    async def programmed(self, ready: frozenset[str], within: float = 10.0) -> None:
        """Wait until every node's kernel sends to `ready` and to nobody else. Raises Unavailable."""
        for node in self.nodes:

            async def look(node: Place = node) -> bool:
                return await self.in_kernel(node) == ready

            await until(f"rules for {len(ready)} backends on {node.name}", look, within)

    @asynccontextmanager
    async def frozen_proxies(self) -> AsyncIterator[int]:
        """All proxies stand still until the block ends; gives how many."""
        try:
            yield sum(processes.send(proxy, signal.SIGSTOP) for proxy in self.proxies)
        finally:
            for proxy in self.proxies:
                processes.send(proxy, signal.SIGCONT)


def _said(done: Completed) -> str:
    """What it printed; what it said beside that only where something went wrong, or nothing was printed."""
    aside = done.stderr if done.returncode or not done.stdout else b""
    return (done.stdout + aside).decode(errors="replace")


async def until(what: str, question: Callable[[], Awaitable[T | None]], within: float) -> T:
    """The first true answer. Raises Unavailable when there is none in `within` seconds."""
    end = time.monotonic() + within
    while True:
        answer = await question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Unavailable(f"{what}: not within {within:g} s")
        await asyncio.sleep(LOOK_EVERY)
