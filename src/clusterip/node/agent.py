"""The node agent: one life for each pod of the node, from what the API says of them."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Never

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror, Watched
from clusterip.client.view import Change
from clusterip.kernel.processes import Launcher
from clusterip.model.objects import Pod, Service
from clusterip.model.resources import PODS, SERVICES
from clusterip.node import probers, registration, server
from clusterip.node.events import Recorder
from clusterip.node.pod import PodLife
from clusterip.node.sandbox import Sandboxes
from clusterip.node.settings import Settings
from clusterip.node.tools import Tools

log = logging.getLogger(__name__)


async def run(connection: Connection, settings: Settings) -> Never:
    """Until cancelled; then no process of a pod is left, and no network. Raises what must end the agent."""
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(connection, user_agent=f"clusterip-node/{settings.node_name}"))
        sandboxes = Sandboxes(settings)
        await sandboxes.prepare()
        stack.callback(sandboxes.clear)
        launcher = await stack.enter_async_context(Launcher())
        probing = await stack.enter_async_context(probers.probe_session())
        selector = f"spec.nodeName={settings.node_name}"
        mirror = Mirror(api, (Watched(PODS, Pod, field_selector=selector), Watched(SERVICES, Service)))
        recorder = Recorder(api, settings.node_name)
        tools = Tools(
            settings=settings,
            api=api,
            launcher=launcher,
            sandboxes=sandboxes,
            recorder=recorder,
            probing=probing,
            services=lambda: tuple(mirror.view.list(Service)),
        )
        async with asyncio.TaskGroup() as tasks:
            agent = Agent(tools, mirror, tasks)
            if settings.serving:
                await server.start(stack, settings.serving, settings.node_ips, agent.lives, tools)
            tasks.create_task(mirror.run(), name="mirror")
            tasks.create_task(recorder.run(), name="events")
            tasks.create_task(registration.run(api, settings), name="registration")
            await agent.run()
    raise AssertionError("the agent runs until it is cancelled")


class Agent:
    """Owns the lives."""

    def __init__(self, tools: Tools, mirror: Mirror, tasks: asyncio.TaskGroup) -> None:
        self.lives: dict[str, PodLife] = {}  # by uid
        self._tools = tools
        self._mirror = mirror
        self._tasks = tasks
        self._done: set[str] = set()  # uids of pods that are deleted, as far as we are concerned

    async def run(self) -> Never:
        first = True
        while True:
            changes = await self._mirror.changes()
            if first:
                uids = frozenset(pod.metadata.uid for pod in self._mirror.view.list(Pod))
                self._tools.sandboxes.forget_all_but(uids)
                first = False
            for change in changes.values():
                self._follow(change)

    def _follow(self, change: Change) -> None:
        before, after = change.before, change.after
        if isinstance(before, Pod) and not (isinstance(after, Pod) and after.metadata.uid == before.metadata.uid):
            self._done.discard(before.metadata.uid)
            if life := self.lives.get(before.metadata.uid):
                life.vanished()
        if isinstance(after, Pod) and after.metadata.uid not in self._done:
            uid = after.metadata.uid
            life = self.lives.get(uid)
            if life is None:
                life = self.lives[uid] = PodLife(self._tools, after)
                self._tasks.create_task(
                    self._live(life, uid), name=f"pod {after.metadata.namespace}/{after.metadata.name}"
                )
            life.heard(after)

    async def _live(self, life: PodLife, uid: str) -> None:
        try:
            await life.run()
        finally:
            del self.lives[uid]
            meta = life.pod.metadata
            held = self._mirror.view.get(Pod, meta.namespace, meta.name)
            if held is not None and held.metadata.uid == uid:
                self._done.add(uid)
