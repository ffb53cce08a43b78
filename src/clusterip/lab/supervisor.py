"""Starts a cluster's processes, starts again those that die, and writes down how it stands.

A process of its own, `python -m clusterip.lab.supervisor STATE`, left behind by `clusterip up`. It reads what to run
from components.json and keeps supervision.json true. SIGTERM: it ends all of them, and itself.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Never

import msgspec

from clusterip.kernel import netns
from clusterip.lab.cgroups import born_in
from clusterip.lab.components import Component
from clusterip.lab.processes import identity
from clusterip.lab.state import ComponentStatus, Identity, State, Supervision

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds before a dead component is started again: doubling
STEADY = 10.0  # seconds a component must have lived for its pause to begin anew
GRACE = 5.0  # seconds from SIGTERM to SIGKILL


class Supervisor:
    def __init__(self, state: State, components: tuple[Component, ...]) -> None:
        own = identity(os.getpid())
        assert own is not None
        self._state = state
        self._components = components
        self._own = own
        self._status = {c.name: ComponentStatus(name=c.name) for c in components}

    def __repr__(self) -> str:
        running = sum(status.process is not None for status in self._status.values())
        return f"Supervisor({self._state.name}, {running} of {len(self._components)} running)"

    async def run(self) -> Never:
        async with asyncio.TaskGroup() as tasks:
            for component in self._components:
                tasks.create_task(self._keep_running(component))
        raise AssertionError("supervised until cancelled")

    async def _keep_running(self, component: Component) -> Never:
        pause = FIRST_PAUSE
        while True:
            started = time.time()
            process = await start(component, self._state.log_of(component.name))
            self._note(component, process=identity(process.pid), since=started)
            log.info("lab.supervisor.started component=%r pid=%d", component.name, process.pid)
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                await stop(process)
                raise
            end = f"exit status {code}" if code >= 0 else f"signal {-code}"
            log.warning("lab.supervisor.ended component=%r how=%r pause=%.1f", component.name, end, pause)
            restarts = self._status[component.name].restarts + 1
            self._note(component, process=None, restarts=restarts, last_end=end)
            pause = FIRST_PAUSE if time.time() - started > STEADY else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _note(self, component: Component, **changed: Identity | float | int | str | None) -> None:
        self._status[component.name] = msgspec.structs.replace(self._status[component.name], **changed)
        self._state.write_supervision(Supervision(supervisor=self._own, components=tuple(self._status.values())))


async def start(component: Component, log_file: Path) -> asyncio.subprocess.Process:
    """In its namespace, in a session of its own: a terminal's Ctrl-C does not reach it."""
    with open(log_file, "ab") as output:  # noqa: ASYNC230  (the file is local, and this is not a server)
        return await asyncio.create_subprocess_exec(
            *born_in(component.cgroup),
            "nsenter",
            f"--net={netns.path(component.netns)}",
            "--",
            *component.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **component.environment},
            pass_fds=component.listen_fds,
            start_new_session=True,
        )


async def stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def main(directory: str) -> None:
    state = State(Path(directory).name, Path(directory))
    components = msgspec.json.decode((state.directory / "components.json").read_bytes(), type=tuple[Component, ...])
    task = asyncio.ensure_future(Supervisor(state, components).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s")
    os.chdir("/")  # whoever called `up` may want to remove the directory they were in
    asyncio.run(main(sys.argv[1]))
