"""The life of one pod: its place, its containers one after the other and side by side, its status, its end."""

import asyncio
import logging
import math
import time
from collections.abc import Sequence

from clusterip.client.mirror import Backoff
from clusterip.errors import ClusterIPError
from clusterip.model.objects import ConfigMap, Pod
from clusterip.model.resources import CONFIG_MAPS, PODS
from clusterip.model.status import ApiError
from clusterip.node import environment, status
from clusterip.node.container import ContainerLife, Surroundings
from clusterip.node.environment import ConfigError, Context
from clusterip.node.publish import Publisher
from clusterip.node.sandbox import Sandbox
from clusterip.node.status import Facts, is_sidecar
from clusterip.node.tools import Tools

log = logging.getLogger(__name__)

TRY_AGAIN = 1.0  # seconds until a network that could not be made is tried again


class PodLife:
    """`run` is its life, from the day the agent hears of the pod until the API knows it no more."""

    def __init__(self, tools: Tools, pod: Pod) -> None:
        self.containers: dict[str, ContainerLife] = {}
        self._tools = tools
        self._vanished = False  # the API has forgotten it already
        self._stop = asyncio.Event()
        self._deadline = math.inf  # of the event loop's clock: when the last process must be gone
        now = status.rfc3339(time.time())
        known = {
            s.name: status.after_restart(s, now)
            for s in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        }
        facts = Facts(host_ips=tools.settings.node_ips, start_time=pod.status.start_time or now, containers=known)
        self._publisher = Publisher(tools.api, pod, facts)

    def __repr__(self) -> str:
        return f"PodLife({self.pod.metadata.namespace}/{self.pod.metadata.name} {self.pod.metadata.uid})"

    @property
    def pod(self) -> Pod:
        return self._publisher.pod

    def heard(self, pod: Pod) -> None:
        """The API has a new version of it."""
        self._publisher.heard(pod)
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            if container.name in self.containers:
                self.containers[container.name].specified(container)
        if pod.metadata.deletion_timestamp:
            seconds = pod.metadata.deletion_grace_period_seconds
            self._end_within(float(30 if seconds is None else seconds))

    def vanished(self) -> None:
        """The API knows it no more."""
        self._vanished = True
        self._end_within(0.0)

    def _end_within(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        if deadline < self._deadline:
            self._deadline = deadline
            self._stop.set()
            for life in self.containers.values():
                life.hurry(seconds)

    async def run(self) -> None:
        if not self.pod.status.ended:
            await self._run()
        await self._stop.wait()
        if not self._vanished:
            await self._delete()
        self._tools.sandboxes.forget(self.pod)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(self._publisher.run())
            living = tasks.create_task(self._live())
            stopped = tasks.create_task(self._stop.wait())
            await asyncio.wait((living, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not living.done():
                await self._end_containers()
                living.cancel()
                await asyncio.wait((living,))
            stopped.cancel()
            self._tools.sandboxes.remove(self.pod)
            self._publisher.changed(over=True)
            if not self._vanished:
                await self._publisher.flushed()
            publishing.cancel()

    async def _live(self) -> None:
        """Until all containers have ended for good, or it is cancelled."""
        if self._ran_its_course():
            return
        sandbox = await self._place()
        self._publisher.changed(pod_ips=sandbox.addresses)
        around = Surroundings(
            self._tools, lambda: self.pod, sandbox, lambda: self._context(sandbox), self._publisher.container
        )
        spec = self.pod.spec
        for container, init in (*((c, True) for c in spec.init_containers), *((c, False) for c in spec.containers)):
            before = self._publisher.facts.containers.get(container.name)
            self.containers[container.name] = ContainerLife(around, container, init, before)
        sidecars = [self.containers[c.name] for c in spec.init_containers if is_sidecar(c)]
        async with asyncio.TaskGroup() as tasks:
            if await self._initialize(tasks):
                await asyncio.gather(*(self.containers[c.name].run() for c in spec.containers))
            for sidecar in reversed(sidecars):
                await sidecar.end(self._grace())

    async def _initialize(self, tasks: asyncio.TaskGroup) -> bool:
        """The init containers, in their order; whether all did their work. A sidecar's work is to have started."""
        for container in self.pod.spec.init_containers:
            life = self.containers[container.name]
            if is_sidecar(container):
                tasks.create_task(life.run())
                await life.started.wait()
            elif await life.run() != 0:
                return False
        return True

    def _ran_its_course(self) -> bool:
        """Before the agent was restarted, every container had ended and is not to be started again."""
        known, policy = self._publisher.facts.containers, self.pod.spec.restart_policy
        for container in self.pod.spec.containers:
            end = known[container.name].state.terminated if container.name in known else None
            if end is None or status.restarts(policy, container, False, end.exit_code):
                return False
        return True

    async def _place(self) -> Sandbox:
        """Its network and files; tried again for ever."""
        while True:
            try:
                return await self._tools.sandboxes.make(self.pod)
            except (ClusterIPError, OSError) as error:
                message = f"Failed to create pod sandbox: {error}"
                self._tools.recorder.say(self.pod, "FailedCreatePodSandBox", message, warning=True)
                log.warning("node.sandbox.failed pod=%s error=%r", self.pod.metadata.name, str(error))
            await asyncio.sleep(TRY_AGAIN)

    async def _context(self, sandbox: Sandbox) -> Context:
        """Raises ConfigError."""
        settings, pod = self._tools.settings, self.pod
        found: dict[str, ConfigMap] = {}
        for name in sorted(environment.config_maps_of(pod)):
            try:
                found[name] = await self._tools.api.get(CONFIG_MAPS, pod.metadata.namespace, name, ConfigMap)
            except ApiError as error:
                if error.code != 404:
                    raise ConfigError(error.message) from error
            except ClusterIPError as error:
                raise ConfigError(error.message) from error
        return Context(
            pod=pod,
            pod_ips=sandbox.addresses,
            host_ips=settings.node_ips,
            node_name=settings.node_name,
            hostname=sandbox.hostname,
            services=self._tools.services(),
            config_maps=found,
        )

    async def _end_containers(self) -> None:
        """Those that do the work side by side, then the sidecars, the last one first."""
        self._tools.recorder.say(self.pod, "Killing", "Stopping the pod's containers")
        spec = self.pod.spec
        sidecars = [c.name for c in spec.init_containers if is_sidecar(c)]
        groups = [[name for name in self.containers if name not in sidecars], *([name] for name in reversed(sidecars))]
        for names in groups:
            await self._end_group([self.containers[name] for name in names if name in self.containers])

    async def _end_group(self, lives: Sequence[ContainerLife]) -> None:
        left = max(self._deadline - asyncio.get_running_loop().time(), 0.0)
        await asyncio.gather(*(life.end(left) for life in lives))

    def _grace(self) -> float:
        seconds = self.pod.spec.termination_grace_period_seconds
        return 30.0 if seconds is None else float(seconds)

    async def _delete(self) -> None:
        """The last word: nothing of it is left here."""
        meta, backoff = self.pod.metadata, Backoff()
        while not self._vanished:
            try:
                await self._tools.api.delete(PODS, meta.namespace, meta.name, grace_seconds=0, uid=meta.uid)
                return
            except ApiError as error:
                if error.code in (404, 409):  # gone, or another pod of that name
                    return
                log.warning("node.pod.not-deleted pod=%s error=%r", meta.name, error.message)
            except ClusterIPError as error:
                log.warning("node.pod.not-deleted pod=%s error=%r", meta.name, error.message)
            await asyncio.sleep(backoff.delay())
