"""Waits until parts of a cluster work; when one does not, says what its log says."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from clusterip.client.api import Api
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.lab.plan import Plan
from clusterip.lab.proxies import follows, proxy_status
from clusterip.lab.state import State
from clusterip.model.objects import EndpointSlice, Namespace, Node, Pod
from clusterip.model.resources import ENDPOINT_SLICES, NAMESPACES, NODES, PODS
from clusterip.model.status import ApiError

T = TypeVar("T")
PATIENCE = 60.0  # seconds for one part, on a slow and busy machine
INTERVAL = 0.05  # seconds between two looks
LAST_LINES = 5
HOPELESS = 5  # restarts of one component


class NotReady(ClusterIPError):
    """A part of the cluster does not work."""


class Waiter:
    def __init__(self, state: State, patience: float = PATIENCE) -> None:
        self._state = state
        self._patience = patience

    async def api(self, api: Api) -> None:
        async def look() -> str | None:
            try:
                await api.list(NAMESPACES, Namespace)
            except Unavailable as error:
                return error.message
            return None

        await self._until("API server", look, "apiserver")

    async def nodes(self, api: Api, names: tuple[str, ...]) -> None:
        async def look() -> str | None:
            ready = {n.metadata.name for n in (await api.list(NODES, Node)).items if is_ready(n)}
            missing = [name for name in names if name not in ready]
            return f"{', '.join(missing)} not ready" if missing else None

        await self._until("nodes", look, *(f"agent of {name}" for name in names))

    async def endpoints(self, api: Api, namespace: str, service: str) -> None:
        """Until the Service has a ready endpoint."""

        async def look() -> str | None:
            selector = f"kubernetes.io/service-name={service}"
            slices = (await api.list(ENDPOINT_SLICES, EndpointSlice, namespace, label_selector=selector)).items
            ready = any(e.conditions.ready is not False for piece in slices for e in piece.endpoints or ())
            return (
                None if ready else f"Service {namespace}/{service} has no ready endpoint; {await _pods(api, namespace)}"
            )

        await self._until(f"Service {namespace}/{service}", look, "controllers")

    async def proxies(self, api: Api, plan: Plan) -> None:
        """Until the kernel of every node has what the API has of endpoints now."""
        slices = (await api.list(ENDPOINT_SLICES, EndpointSlice)).items
        revision = max((int(piece.metadata.resource_version) for piece in slices), default=0)

        async def look() -> str | None:
            told = zip(
                plan.node_names, await asyncio.gather(*(proxy_status(plan, n) for n in plan.node_names)), strict=True
            )
            late = [
                f"{node}: {error or 'behind'}"
                for node, (said, error) in told
                if not follows(said, "EndpointSlice", revision)
            ]
            return ", ".join(late) or None

        await self._until("proxies", look, *(f"proxy of {name}" for name in plan.node_names))

    async def pod(self, api: Api, namespace: str, name: str) -> Pod:
        found: list[Pod] = []

        async def look() -> str | None:
            try:
                pod = await api.get(PODS, namespace, name, Pod)
            except ApiError as error:
                return error.message
            found.append(pod)
            return None if running(pod) else describe(pod)

        await self._until(f"pod {namespace}/{name}", look, "controllers")
        return found[-1]

    async def _until(self, what: str, look: Callable[[], Awaitable[str | None]], *components: str) -> None:
        """`look` says what is missing, or None. `components`: whose logs may tell why."""
        end = time.monotonic() + self._patience
        while (missing := await look()) is not None:
            self._refuse_what_keeps_ending(what)
            if time.monotonic() > end:
                message = f"{what}: after {self._patience:.0f} s still: {missing}{self._said(components)}"
                raise NotReady(message, self._hint())
            await asyncio.sleep(INTERVAL)

    def _refuse_what_keeps_ending(self, what: str) -> None:
        supervision = self._state.supervision()
        if supervision is None:
            return
        for status in supervision.components:
            if status.restarts >= HOPELESS and status.process is None:
                raise NotReady(
                    f"{what}: {status.name} ended {status.restarts} times, last with {status.last_end}"
                    f"{self._said((status.name,))}",
                    self._hint(),
                )

    def _hint(self) -> str:
        return f"clusterip status --name {self._state.name}; all logs are in {self._state.logs}"

    def _said(self, components: tuple[str, ...]) -> str:
        """The last lines of the logs that have any."""
        said = ""
        for component in components:
            path = self._state.log_of(component)
            lines = path.read_text(errors="replace").splitlines()[-LAST_LINES:] if path.exists() else []
            said += "".join(f"\n  {component}: {line}" for line in lines)
        return said


def is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def running(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def describe(pod: Pod) -> str:
    """The pod's phase, and what its containers wait for."""
    waiting = [s.state.waiting for s in pod.status.container_statuses if s.state.waiting]
    reasons = "".join(f", {w.reason} {w.message}".rstrip() for w in waiting)
    where = f" on {pod.spec.node_name}" if pod.spec.node_name else ", not scheduled"
    return f"pod {pod.metadata.name} is {pod.status.phase}{where}{reasons}"


async def _pods(api: Api, namespace: str) -> str:
    pods = (await api.list(PODS, Pod, namespace)).items
    return "; ".join(describe(pod) for pod in pods) or "it has no pods"
