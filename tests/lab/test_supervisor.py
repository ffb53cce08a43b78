"""The supervisor as `up` leaves it behind, and `down`, with small programs for components."""

import asyncio
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.waiting import until

from clusterip.errors import BadInput
from clusterip.kernel import netns
from clusterip.lab import down, processes
from clusterip.lab.components import Component
from clusterip.lab.state import ComponentStatus, Identity, State, Supervision, locked, write
from clusterip.lab.up import leave_supervisor

pytestmark = pytest.mark.kernel

LONG = "import time; print('here', flush=True); time.sleep(600)"


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    name = f"s{uuid.uuid4().hex[:6]}"
    netns.create(f"{name}.node-1")
    made = State(name, tmp_path / name)
    made.logs.mkdir(parents=True)
    yield made
    await down.take_away(made)
    assert down.remains(made) == ""


def component(state: State, name: str, code: str) -> Component:
    return Component(name=name, argv=(sys.executable, "-c", code), netns=f"{state.name}.node-1")


def supervise(state: State, *components: Component) -> None:
    write(state.directory / "components.json", msgspec.json.encode(components))
    leave_supervisor(state)


def status(state: State, name: str = "a") -> ComponentStatus | None:
    supervision = state.supervision()
    return next((c for c in supervision.components if c.name == name), None) if supervision else None


def living(state: State, name: str = "a") -> Identity | None:
    found = status(state, name)
    return found.process if found and processes.alive(found.process) else None


async def test_a_component_runs_in_its_namespace_and_writes_its_log(state: State) -> None:
    supervise(state, component(state, "agent of node-1", LONG))
    await until(lambda: living(state, "agent of node-1"))
    process = living(state, "agent of node-1")
    assert process in processes.inside([f"{state.name}.node-1"])
    await until(lambda: (state.logs / "agent-node-1.log").read_text() == "here\n")


async def test_a_component_that_is_killed_is_started_again_and_counted(state: State) -> None:
    supervise(state, component(state, "a", LONG))
    await until(lambda: living(state))
    first = living(state)
    processes.send(first, signal.SIGKILL)
    await until(lambda: living(state) not in (None, first))
    told = status(state)
    assert told is not None
    assert (told.restarts, told.last_end) == (1, "signal 9")


async def test_a_component_that_ends_again_and_again_is_started_less_and_less_often(state: State) -> None:
    supervise(state, component(state, "a", "raise SystemExit(3)"))
    await until(lambda: (s := status(state)) is not None and s.restarts >= 3)
    told = status(state)
    assert told is not None
    assert told.last_end == "exit status 3"
    await asyncio.sleep(0.5)
    after = status(state)
    assert after is not None
    assert after.restarts - told.restarts <= 1


async def test_told_to_end_the_supervisor_ends_its_components(state: State) -> None:
    supervise(state, component(state, "a", LONG), component(state, "b", LONG))
    await until(lambda: living(state, "a") and living(state, "b"))
    (supervisor,) = down.supervisors(state)
    children = down.belonging(state)
    assert len(children) == 2
    processes.send(supervisor, signal.SIGTERM)
    assert processes.wait_gone((supervisor, *children), 20) == ()


async def test_down_takes_all_away_says_so_and_twice_is_fine(state: State) -> None:
    supervise(state, component(state, "a", LONG))
    await until(lambda: living(state))
    stray = subprocess.Popen(["nsenter", f"--net=/run/netns/{state.name}.node-1", "sleep", "600"])  # noqa: ASYNC220
    await until(lambda: len(processes.inside([f"{state.name}.node-1"])) == 2)
    removed = await down.take_away(state)
    assert stray.wait(5) == -signal.SIGKILL
    assert (removed.processes, removed.namespaces, removed.directory) == (3, 1, True)
    assert "3 processes, 1 network namespace" in str(removed)
    assert not await down.take_away(state)


async def test_down_finds_a_supervisor_that_has_written_nothing(state: State) -> None:
    supervise(state, component(state, "a", LONG))
    await until(lambda: living(state))
    (state.directory / "supervision.json").write_text("{half")
    assert (await down.take_away(state)).processes == 2


async def test_down_leaves_alone_who_has_got_a_recorded_pid(state: State) -> None:
    bystander = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    try:
        own = processes.identity(bystander.pid)
        assert own is not None
        recycled = Identity(own.pid, own.started - 1)
        component_status = ComponentStatus(name="a", process=recycled)
        state.write_supervision(Supervision(supervisor=recycled, components=(component_status,)))
        assert (await down.take_away(state)).processes == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_down_unmounts_what_is_mounted_in_its_directory(state: State) -> None:
    place = state.directory / "a b"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)  # noqa: ASYNC221
    assert (await down.take_away(state)).mounts == 1
    assert down.remains(state) == ""


def test_a_dead_process_that_nobody_has_waited_for_is_dead() -> None:
    child = subprocess.Popen(["true"])
    end = time.monotonic() + 10
    while processes.identity(child.pid) is not None:
        assert time.monotonic() < end
    child.wait()


def test_one_up_or_down_of_a_name_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERIP_STATE", str(tmp_path / "state"))
    with locked("one"):
        with pytest.raises(BadInput, match="at work"), locked("one"):
            pass
        with locked("two"):
            pass
    assert not (tmp_path / "state").exists(), "nothing is left of the lock"
