import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterip.kernel import cgroup
from clusterip.lab import cgroups
from clusterip.lab.plan import Plan


@pytest.fixture
def plan() -> Iterator[Plan]:
    made = Plan(name=f"t{uuid.uuid4().hex[:6]}", nodes=2)
    yield made
    cgroups.remove(made.name)


@pytest.mark.kernel
def test_each_node_has_a_cgroup_and_what_is_started_there_is_in_it(plan: Plan) -> None:
    made = cgroups.make(plan)
    assert set(made) == {"node-1", "node-2"}
    assert cgroups.of_member(plan, "node-1") == made["node-1"]
    assert cgroups.of_member(plan, "control-plane") == ""
    argv = [*cgroups.born_in(made["node-1"]), sys.executable, "-c", "print(open('/proc/self/cgroup').read())"]
    seen = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert f"0::/{Path(made['node-1']).relative_to(cgroup.mount_point())}\n" in seen
    assert os.getpid() not in cgroup.processes(Path(made["node-1"]))


@pytest.mark.kernel
async def test_removal_waits_for_the_last_process_and_twice_is_fine(plan: Plan) -> None:
    made = cgroups.make(plan)
    process = await asyncio.create_subprocess_exec(*cgroups.born_in(made["node-1"]), "sleep", "0.3")
    await asyncio.sleep(0.1)
    removal = asyncio.to_thread(cgroups.remove, plan.name)
    await asyncio.gather(removal, process.wait())
    assert not cgroups.path(plan.name).exists()
    cgroups.remove(plan.name)


def test_where_there_is_no_cgroup_a_command_is_started_as_it_is() -> None:
    assert cgroups.born_in("") == ()


def test_a_command_runs_although_the_cgroup_is_gone() -> None:
    argv = [*cgroups.born_in("/nowhere"), "echo", "hello"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "hello\n"
