"""How pods end: deleted, killed, vanished, and with their agent."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.node.onenode import (
    Tenant,
    container,
    echo,
    eventually,
    is_ready,
    network,
    no_network,
    no_processes,
    one_network,
    session,
    shell,
)

from clusterip.client import tls
from clusterip.kernel import netns
from clusterip.model.resources import PODS

pytestmark = pytest.mark.kernel


async def test_deletion_runs_the_hook_then_ends_the_program_then_the_pod(here: Tenant) -> None:
    log = here.node.directory / f"{here.namespace}.end"
    script = f"trap 'echo term >> {log}; exit 0' TERM; while :; do sleep 0.02; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"sleep 0.2; echo hook >> {log}"]}}}
    await here.create("end", shell(script, lifecycle=hook))
    await here.ready("end")
    await here.api.delete(PODS, here.namespace, "end")
    pod = await here.pod("end")
    assert pod.metadata.deletion_timestamp
    assert is_ready(pod)  # it serves until it ends
    await here.gone("end", 4)
    assert log.read_text() == "hook\nterm\n"
    assert await no_network(here, "end")


async def test_a_program_that_is_deaf_is_killed_when_its_time_is_up(here: Tenant) -> None:
    await here.create("deaf", shell("trap '' TERM; while :; do sleep 0.05; done"), terminationGracePeriodSeconds=1)
    await here.ready("deaf")
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await here.api.delete(PODS, here.namespace, "deaf")
    await here.gone("deaf", 10)
    assert 0.9 < time.monotonic() - began < 6


async def test_a_second_deletion_can_shorten_the_grace_period(here: Tenant) -> None:
    await here.create("deaf", shell("trap '' TERM; while :; do sleep 0.05; done"), terminationGracePeriodSeconds=600)
    await here.ready("deaf")
    await asyncio.sleep(0.2)
    await here.api.delete(PODS, here.namespace, "deaf")
    await asyncio.sleep(0.2)
    await here.api.delete(PODS, here.namespace, "deaf", grace_seconds=1)
    await here.gone("deaf", 10)


async def test_a_pod_that_vanishes_from_the_api_is_killed(here: Tenant) -> None:
    await here.create("doomed", shell("trap '' TERM; while :; do sleep 0.05; done"))
    await here.ready("doomed")
    space = network(here, "doomed")
    await here.api.delete(PODS, here.namespace, "doomed", grace_seconds=0)
    await here.gone("doomed", 1)
    await eventually(lambda: no_network(here, "doomed"), 5)
    assert space not in netns.names()


async def test_a_pod_of_the_same_name_is_a_new_pod(here: Tenant) -> None:
    await here.create("again", echo("c"))
    first = await here.ready("again")
    await here.api.delete(PODS, here.namespace, "again", grace_seconds=0)
    await here.create("again", echo("c"))
    second = await here.ready("again")
    assert second.metadata.uid != first.metadata.uid
    assert second.status.pod_ip != first.status.pod_ip
    await eventually(lambda: one_network(here, "again"))


async def test_a_kill_9_of_the_agent_ends_its_pods_and_the_next_agent_starts_them_again(here: Tenant) -> None:
    await here.create("web", echo("c"))
    await here.create("done", shell("echo kept"), restartPolicy="Never")
    first = await here.ready("web")
    await here.until("done", lambda pod: pod.status.phase == "Succeeded")
    here.node.stop_agent(signal.SIGKILL)
    await eventually(lambda: no_processes(here))
    here.node.start_agent()
    second = await here.until("web", lambda pod: container(pod).restart_count == 1 and is_ready(pod))
    assert second.status.pod_ip != first.status.pod_ip
    last = container(second).last_state.terminated
    assert last is not None
    assert last.reason == "ContainerStatusUnknown"
    assert (await here.pod("done")).status.phase == "Succeeded"
    assert await here.logs("done") == (200, "kept\n")
    assert await one_network(here, "web")


async def test_an_agent_that_is_told_to_end_leaves_nothing(here: Tenant) -> None:
    await here.create("web", echo("c"))
    await here.ready("web")
    assert here.node.processes() != []
    code = here.node.stop_agent()
    left = here.node.networks()
    here.node.start_agent()
    assert (code, left) == (0, [])
    await here.until("web", lambda pod: container(pod).restart_count == 1 and is_ready(pod))


async def test_an_agent_ends_although_somebody_follows_a_log(here: Tenant) -> None:
    await here.create("web", echo("c"))
    await here.ready("web")
    async with (
        session(here.node) as http,
        http.get(here.url("web", "log"), params={"follow": "true"}, ssl=tls.context(here.node.connection)) as answer,
    ):
        assert answer.status == 200
        code = await asyncio.to_thread(here.node.stop_agent)
        await answer.read()
    here.node.start_agent()
    assert code == 0
    await here.until("web", lambda pod: container(pod).restart_count == 1 and is_ready(pod))


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_an_agent_whose_launcher_dies_says_so_and_ends(here: Tenant) -> None:
    await here.create("web", echo("c"))
    await here.ready("web")
    for child in children(here.node.agent.pid):
        os.kill(child, signal.SIGKILL)
    code = await asyncio.to_thread(here.node.agent.wait, 10)
    said = here.node.log().splitlines()[-1]
    here.node.start_agent()
    assert (code, said) == (1, "error: launcher of pods' processes: it has ended")
    await here.until("web", lambda pod: container(pod).restart_count == 1 and is_ready(pod))
