"""exec and logs, through the API server as clients use them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from tests.node.onenode import Tenant, container, echo, eventually, session, shell

from clusterip.client import tls

pytestmark = pytest.mark.kernel

CLIENT = {"name": "c", "image": "clusterip/client"}


@asynccontextmanager
async def executing(
    here: Tenant, pod: str, *argv: str, flags: str = "stdout stderr", protocol: str = "v5.channel.k8s.io"
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    query = [*(("command", word) for word in argv), *((flag, "true") for flag in flags.split())]
    async with (
        session(here.node) as http,
        http.ws_connect(
            here.url(pod, "exec"), params=query, protocols=(protocol,), ssl=tls.context(here.node.connection)
        ) as socket,
    ):
        assert socket.protocol == protocol
        yield socket


async def ending(socket: aiohttp.ClientWebSocketResponse) -> tuple[bytes, bytes, dict[str, object]]:
    """All of stdout and stderr, and the status at the end."""
    said = {1: b"", 2: b""}
    status: dict[str, object] = {}
    async with asyncio.timeout(10):
        async for message in socket:
            channel, data = message.data[0], message.data[1:]
            if channel == 3:
                status = json.loads(data)
            else:
                said[channel] += data
    assert socket.close_code == 1000
    return said[1], said[2], status


@pytest.fixture
async def client(here: Tenant) -> Tenant:
    await here.create("client", CLIENT)
    await here.ready("client")
    return here


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_both_streams_and_success_come_back(client: Tenant, protocol: str) -> None:
    async with executing(client, "client", "sh", "-c", "echo out; echo err >&2; hostname", protocol=protocol) as socket:
        assert await ending(socket) == (b"out\nclient\n", b"err\n", {"metadata": {}, "status": "Success"})


async def test_another_exit_status_is_told_as_the_kubelet_does(client: Tenant) -> None:
    async with executing(client, "client", "sh", "-c", "exit 3") as socket:
        _, _, status = await ending(socket)
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}


async def test_a_program_that_is_not_there_is_an_error_of_its_own(client: Tenant) -> None:
    async with executing(client, "client", "no-such-program") as socket:
        _, _, status = await ending(socket)
    assert (status["status"], status["reason"], status["code"]) == ("Failure", "InternalError", 500)
    assert 'exec: "no-such-program": executable file not found in $PATH' in str(status["message"])


async def test_input_reaches_the_program_until_it_is_closed(client: Tenant) -> None:
    async with executing(client, "client", "sort", flags="stdin stdout stderr") as socket:
        await socket.send_bytes(b"\0b\n")
        await socket.send_bytes(b"\0a\n")
        await socket.send_bytes(b"\xff\0")
        assert (await ending(socket))[0] == b"a\nb\n"


async def test_much_input_and_output_come_through_whole(client: Tenant) -> None:
    block = bytes(range(256)) * 128
    async with executing(client, "client", "cat", flags="stdin stdout") as socket:

        async def send() -> None:
            for _ in range(64):
                await socket.send_bytes(b"\0" + block)
            await socket.send_bytes(b"\xff\0")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            receiving = tasks.create_task(ending(socket))
    assert receiving.result()[0] == block * 64


async def test_a_terminal_is_one_and_has_the_size_it_is_given(client: Tenant) -> None:
    script = "test -t 0 && echo terminal; while ! stty size | grep -q '40 100'; do sleep 0.05; done; stty size; exit 5"
    async with executing(client, "client", "sh", "-c", script, flags="stdin stdout tty") as socket:
        await socket.send_bytes(b'\x04{"Width": 100, "Height": 40}')
        out, err, status = await ending(socket)
    assert out.split() == [b"terminal", b"40", b"100"]
    assert err == b""
    assert status["reason"] == "NonZeroExitCode"


async def test_a_terminal_passes_control_c_on(client: Tenant) -> None:
    async with executing(
        client, "client", "sh", "-c", "echo ready; exec sleep 1000", flags="stdin stdout tty"
    ) as socket:
        while b"ready" not in (await socket.receive_bytes(timeout=5)):
            pass
        await asyncio.sleep(0.1)
        await socket.send_bytes(b"\0\x03")
        _, _, status = await ending(socket)
    assert status["details"] == {"causes": [{"reason": "ExitCode", "message": "130"}]}


async def test_a_client_that_leaves_takes_its_program_along(client: Tenant) -> None:
    async with executing(client, "client", "sleep", "54321.5") as socket:

        async def runs() -> bool:
            return any("54321.5" in line for line in client.node.processes())

        await eventually(runs)
        await socket.close()

    async def ended() -> bool:
        return not await runs()

    await eventually(ended, 5)


async def test_a_program_whose_children_hold_its_output_ends_all_the_same(client: Tenant) -> None:
    async with executing(client, "client", "sh", "-c", "echo out; sleep 50 &") as socket:
        assert (await ending(socket))[0] == b"out\n"


async def test_a_container_that_does_not_run_cannot_be_entered(here: Tenant) -> None:
    await here.create("done", shell("exit 0"), restartPolicy="Never")
    await here.until("done", lambda pod: pod.status.phase == "Succeeded")
    with pytest.raises(aiohttp.WSServerHandshakeError):
        async with executing(here, "done", "true"):
            pass


async def test_logs_can_be_followed_to_the_end_of_the_container(here: Tenant) -> None:
    await here.create("speaks", shell("for i in 1 2 3; do echo $i; sleep 0.2; done"), restartPolicy="Never")
    await here.until("speaks", lambda pod: container(pod).state.running is not None)
    assert await here.logs("speaks", follow="true") == (200, "1\n2\n3\n")


async def open_logs(here: Tenant, count: int) -> None:
    """Waits until the agent has that many descriptors of containers' logs: one writes, the others read."""

    async def that_many() -> bool:
        return descriptors(here) == count

    await eventually(that_many, 5)


def descriptors(here: Tenant) -> int:
    found = 0
    for entry in Path(f"/proc/{here.node.agent.pid}/fd").iterdir():
        with suppress(OSError):
            found += os.readlink(entry).endswith("/c/0.log")
    return found


async def test_a_reader_that_leaves_a_silent_log_is_not_waited_for(client: Tenant) -> None:
    before = descriptors(client)
    async with session(client.node) as http:
        query, context = {"follow": "true"}, tls.context(client.node.connection)
        async with http.get(client.url("client", "log"), params=query, ssl=context) as answer:
            assert answer.status == 200
            await open_logs(client, before + 1)
    await open_logs(client, before)


async def test_logs_have_both_streams_and_the_options_of_kubectl(here: Tenant) -> None:
    await here.create("speaks", shell("echo one; echo two >&2; sleep 0.1; printf three"), restartPolicy="Never")
    await here.until("speaks", lambda pod: pod.status.phase == "Succeeded")
    _, text = await here.logs("speaks")
    assert sorted(text.split()) == ["one", "three", "two"]
    assert await here.logs("speaks", tailLines="1") == (200, "three\n")
    assert await here.logs("speaks", limitBytes="2", tailLines="1") == (200, "th")
    assert (await here.logs("speaks", timestamps="true", tailLines="1"))[1].endswith("Z three\n")
    assert (await here.logs("speaks", sinceSeconds="100"))[1] == text
    assert (await here.logs("speaks", previous="true"))[0] == 400


async def test_logs_of_a_container_that_waits_say_why(here: Tenant) -> None:
    await here.create("lost", {"name": "c", "image": "nginx"})

    async def told() -> bool:
        code, text = await here.logs("lost")
        return code == 400 and "is waiting to start: ErrImageNotMapped" in text

    await eventually(told)


async def test_an_echo_server_is_heard_by_a_client_pod(client: Tenant) -> None:
    await client.create("web", echo())
    address = (await client.ready("web")).status.pod_ip
    command = ("curl", "-s", "--retry", "5", "--retry-connrefused", f"http://{address}:8080/hostname")
    async with executing(client, "client", *command) as socket:
        assert (await ending(socket))[0] == b"web\n"
