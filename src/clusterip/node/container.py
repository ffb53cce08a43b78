"""The life of one container: started, probed, ended, started again."""

import asyncio
import logging
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from clusterip.kernel import processes
from clusterip.kernel.processes import End, Process, Program, StartFailed, Stdio
from clusterip.model.objects import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    LifecycleHandler,
    Pod,
    Probe,
)
from clusterip.node import environment, images, logs, probe, probers, status
from clusterip.node.beside import Result, execute
from clusterip.node.environment import ConfigError
from clusterip.node.images import NotMapped, Runnable
from clusterip.node.logs import Log
from clusterip.node.probe import Kind
from clusterip.node.sandbox import Sandbox
from clusterip.node.tools import Tools

log = logging.getLogger(__name__)

LOOK_AGAIN = 1.0  # seconds until a ConfigMap that was missing is looked for again
LAST_CHANCE = 2.0  # seconds a container has after SIGTERM, also where its preStop hook has used up the grace period


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container's life needs of its pod."""

    tools: Tools
    pod: Callable[[], Pod]  # as it is now
    sandbox: Sandbox
    context: Callable[[], Awaitable[environment.Context]]
    tell: Callable[[ContainerStatus], None]  # the container's status has changed


class ContainerLife:
    """`run` is its life; `end` brings it to an end. Both are called by the pod."""

    def __init__(self, around: Surroundings, container: Container, init: bool, before: ContainerStatus | None) -> None:
        self.container = container
        self.status = before or status.fresh(container, "ContainerCreating")
        self.process: Process | None = None
        self.log: Log | None = None
        self.program: Program | None = None  # its environment is that of commands beside it
        self.started = asyncio.Event()  # it has run, and has passed its startup probe if it has one
        self._around = around
        self._init = init
        self._stopping = False
        self._respecified = False  # it runs, or ran last, by a specification that is not the present one
        self._nudge = asyncio.Event()  # one of the two has changed
        self._limit: asyncio.Timeout | None = None  # of the wait for the end that is under way
        self._deadline = math.inf  # of the event loop's clock

    async def run(self) -> int:
        """Until it is not to be started again; the exit status of the last time."""
        failures, known = 0, self.status.state.terminated
        if known and not self._again(known.exit_code):
            return known.exit_code
        while True:
            began = time.monotonic()
            code = await self._once()
            if not self._again(code):
                return code
            failures = 1 if time.monotonic() - began >= status.STEADY else failures + 1
            if not self._respecified:
                await self._back_off(failures)
            if self._stopping:
                return code

    async def end(self, seconds: float) -> None:
        """No more starts; what runs is told to end, and killed if it has not after `seconds`."""
        self._stopping = True
        self._nudge.set()
        await self._kill(seconds)

    def specified(self, container: Container) -> None:
        """It is to be `container` now. Only the image can change; the one that runs is ended, whatever the policy."""
        if container.image != self.container.image:
            self.container = container
            self._respecified = True
            self._nudge.set()

    def hurry(self, seconds: float) -> None:
        """An `end` under way is to take no longer than this from now."""
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + seconds)
        limit = self._limit and self._limit.when()
        if self._limit and limit and limit > self._deadline:
            self._limit.reschedule(self._deadline)

    def _again(self, code: int) -> bool:
        policy = self._around.pod().spec.restart_policy
        wanted = self._respecified or status.restarts(policy, self.container, self._init, code)
        return wanted and not self._stopping

    async def _back_off(self, failures: int) -> None:
        settings = self._around.tools.settings
        pause = status.back_off(failures, settings.back_off_first, settings.back_off_most)
        if not pause:
            return
        meta = self._around.pod().metadata
        message = (
            f"back-off {pause:g}s restarting failed container={self.container.name} "
            f"pod={meta.name}_{meta.namespace}({meta.uid})"
        )
        self._waits("CrashLoopBackOff", message)
        self._say("BackOff", f"Back-off restarting failed container {self.container.name}", warning=True)
        await self._pause(pause)

    def _waits(self, reason: str, message: str) -> None:
        ended = self.status.state.terminated or self.status.last_state.terminated
        self._set(state=status.waiting(reason, message), last_state=ContainerState(terminated=ended))

    async def _pause(self, seconds: float | None) -> None:
        """So long, or for ever; or until it is to end, or to be another program."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()

    async def _once(self) -> int:
        """From one start to the end that follows; the exit status."""
        program = await self._configured()
        if program is None:
            return 0
        self.program = program
        if self._ran_before():
            ended = self.status.state.terminated or self.status.last_state.terminated
            count = self.status.restart_count + 1
            self._set(restart_count=count, last_state=ContainerState(terminated=ended))
        run = self.status.restart_count
        directory = self._around.tools.sandboxes.directory(self._around.pod())
        logs.forget_old(directory, self.container.name, run)
        self.log = Log(logs.path_of(directory, self.container.name, run))
        began = time.time()
        try:
            return self._ended(began, await self._running(program, self.log))
        except StartFailed as error:
            self._say("Failed", f"Error: {error.message}", warning=True)
            return self._ended(began, End(128, error.message), reason="StartError")
        finally:
            self.log.close()

    def _ran_before(self) -> bool:
        state = self.status.state
        return bool(state.terminated or state.running or self.status.last_state.terminated)

    async def _configured(self) -> Program | None:
        """What to run, once it is known; None if it is to end before."""
        while not self._stopping:
            self._nudge.clear()
            self._respecified = False
            found = images.resolve(self._around.tools.settings.images, self.container)
            if isinstance(found, NotMapped):
                self._waits("ErrImageNotMapped", found.message)
                self._say("Failed", f"Error: ErrImageNotMapped: {found.message}", warning=True)
                await self._pause(None)
                continue
            try:
                return self._program(await self._around.context(), found)
            except ConfigError as error:
                self._waits("CreateContainerConfigError", error.message)
                self._say("Failed", f"Error: {error.message}", warning=True)
                await self._pause(LOOK_AGAIN)
        return None

    def _program(self, context: environment.Context, found: Runnable) -> Program:
        env = environment.build(context, self.container, found.env)
        argv = tuple(environment.expand(word, env) for word in found.argv)
        return Program(argv, env, self.container.working_dir or "/")

    async def _running(self, program: Program, log_file: Log) -> End:
        """From start to end. Raises StartFailed. Whatever happens, it does not outlive this call."""
        out, out_fd = await processes.output_pipe()
        err, err_fd = await processes.output_pipe()
        box = self._around.sandbox
        try:
            container = processes.Container(box.netns, box.hostname, box.binds)
            process = await self._around.tools.launcher.start(program, container, Stdio(out=out_fd, err=err_fd))
        finally:
            os.close(out_fd)
            os.close(err_fd)
        self.process = process
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(logs.collect(out, log_file, b"stdout"))
                tasks.create_task(logs.collect(err, log_file, b"stderr"))
                watching = tasks.create_task(self._watch(process))
                replacing = tasks.create_task(self._end_when_respecified())
                end = await process.ended()
                watching.cancel()
                replacing.cancel()
        finally:
            process.signal(signal.SIGKILL)
            self.process = None
        return end

    async def _end_when_respecified(self) -> None:
        await self._nudge.wait()
        if not self._stopping:
            self._say("Killing", f"Container {self.container.name} definition changed, will be restarted")
            await self._kill(self._grace())

    async def _watch(self, process: Process) -> None:
        """The hook, then the probes; cancelled when the container ends."""
        container, meta = self.container, self._around.pod().metadata
        ours = f"clusterip://{meta.uid}/{container.name}/{self.status.restart_count}"
        state = ContainerState(running=ContainerStateRunning(started_at=status.rfc3339(time.time())))
        unprobed = container.startup_probe is None
        self._set(
            state=state,
            container_id=ours,
            image=container.image,
            image_id=container.image,
            started=unprobed,
            ready=unprobed and container.readiness_probe is None,
        )
        self._say("Started", f"Container started: {container.name}")
        post_start = container.lifecycle and container.lifecycle.post_start
        if post_start and (trouble := await self._hook(post_start, process)):
            self._say("FailedPostStartHook", trouble, warning=True)
            await self._kill(self._grace())
            return
        if container.startup_probe:
            if not await self._keep_asking(Kind.STARTUP, container.startup_probe, process):
                return
            self._set(started=True, ready=container.readiness_probe is None)
        self.started.set()
        async with asyncio.TaskGroup() as tasks:
            if container.liveness_probe:
                tasks.create_task(self._keep_asking(Kind.LIVENESS, container.liveness_probe, process))
            if container.readiness_probe:
                tasks.create_task(self._keep_asking(Kind.READINESS, container.readiness_probe, process))

    async def _keep_asking(self, kind: Kind, asked: Probe, process: Process) -> bool:
        """A startup probe until it has succeeded (true), the others for ever; or until they have the container
        killed."""
        target = probers.Target(
            self._around.sandbox.addresses[0],
            probers.named_ports(self.container),
            lambda argv: self._beside(argv, process),
        )
        verdict, failures = probe.initial(kind), 0
        await asyncio.sleep(probe.first_delay(asked, kind))
        began = time.monotonic()
        while True:
            outcome = await probers.ask(self._around.tools.probing, asked, target)
            if probe.counts(kind, outcome.ok, time.monotonic() - began):
                verdict = probe.after(asked, verdict, outcome.ok)
            if not outcome.ok:
                failures += 1
                self._say("Unhealthy", f"{kind.value} probe failed: {outcome.message}", warning=True)
            if kind is Kind.READINESS:
                self._set(ready=verdict.ok)
            elif probe.failed_for_good(asked, verdict):
                name = self.container.name
                self._say("Killing", f"Container {name} failed {kind.value.lower()} probe, will be restarted")
                await self._kill(self._grace())
                return False
            elif kind is Kind.STARTUP and verdict.ok:
                return True
            await asyncio.sleep(probe.delay(asked, kind, verdict, failures))

    async def _kill(self, seconds: float) -> None:
        process = self.process
        if process is None or not process.running:
            return
        now = asyncio.get_running_loop().time
        self._deadline = now() + seconds
        pre_stop = self.container.lifecycle and self.container.lifecycle.pre_stop
        if pre_stop and seconds > 0:
            trouble = f"preStop hook did not end within the grace period of {seconds:g} s"
            with suppress(TimeoutError):
                async with self._limited(self._deadline):
                    trouble = await self._hook(pre_stop, process)
            if trouble:
                self._say("FailedPreStopHook", trouble, warning=True)
            self._deadline = max(self._deadline, now() + LAST_CHANCE)
        process.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with self._limited(self._deadline):
                await process.ended()
        process.signal(signal.SIGKILL)
        await process.ended()
        self._deadline = math.inf

    @asynccontextmanager
    async def _limited(self, deadline: float) -> AsyncIterator[None]:
        """A time limit that `hurry` can shorten."""
        async with asyncio.timeout_at(deadline) as self._limit:
            try:
                yield
            finally:
                self._limit = None

    async def _hook(self, hook: LifecycleHandler, process: Process) -> str:
        """What went wrong, "" if nothing did."""
        if hook.exec:
            result = await self._beside(hook.exec.command, process)
            return "" if result.code == 0 else f"Exec lifecycle hook failed, {result.code}: {result.output[:300]}"
        if hook.http_get:
            target = probers.Target(
                self._around.sandbox.addresses[0],
                probers.named_ports(self.container),
                lambda a: self._beside(a, process),
            )
            return (await probers.http_get(self._around.tools.probing, hook.http_get, target)).message
        if hook.sleep:
            await asyncio.sleep(hook.sleep.seconds)
        return ""

    async def _beside(self, argv: tuple[str, ...], process: Process) -> Result:
        env: Mapping[str, str] = self.program.env if self.program else {}
        return await execute(self._around.tools.launcher, process, Program(argv, env, self._directory()))

    def _directory(self) -> str:
        return self.container.working_dir or "/"

    def _grace(self) -> float:
        seconds = self._around.pod().spec.termination_grace_period_seconds
        return 30.0 if seconds is None else float(seconds)

    def _ended(self, began: float, end: End, reason: str = "") -> int:
        self.started.clear()
        state = ContainerStateTerminated(
            exit_code=end.code,
            reason=reason or ("Completed" if end.code == 0 else "Error"),
            message=end.error,
            started_at=status.rfc3339(began),
            finished_at=status.rfc3339(time.time()),
        )
        self._set(state=ContainerState(terminated=state), ready=False, started=False)
        return end.code

    def _set(self, **changed: object) -> None:
        new = msgspec.structs.replace(self.status, **changed)
        if new != self.status:
            self.status = new
            self._around.tell(new)

    def _say(self, reason: str, message: str, *, warning: bool = False) -> None:
        pod, kind = self._around.pod(), "initContainers" if self._init else "containers"
        part = f"spec.{kind}{{{self.container.name}}}"
        self._around.tools.recorder.say(pod, reason, message, part=part, warning=warning)
