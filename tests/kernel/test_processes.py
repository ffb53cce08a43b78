import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from clusterip.errors import Unavailable
from clusterip.kernel import netns
from clusterip.kernel.processes import Container, End, Launcher, Process, Program, StartFailed, Stdio

pytestmark = pytest.mark.kernel

ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as started:
        yield started


@pytest.fixture
def space() -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    netns.create(name)
    yield name
    netns.delete(name)


def shell(script: str) -> Program:
    return Program(("sh", "-c", script), ENV)


async def output(launcher: Launcher, program: Program, container: Container | Process) -> tuple[str, End]:
    reader, writer = os.pipe()
    stdio = Stdio(out=writer, err=writer)
    try:
        if isinstance(container, Process):
            process = await launcher.join(program, container, stdio)
        else:
            process = await launcher.start(program, container, stdio)
    finally:
        os.close(writer)
    with os.fdopen(reader) as stream:
        text = await asyncio.to_thread(stream.read)
    return text.strip(), await process.ended()


def alive(mark: str) -> list[int]:
    """Processes that have `mark` as an argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


async def all_gone(mark: str) -> bool:
    for _ in range(200):
        if not alive(mark):
            return True
        await asyncio.sleep(0.02)
    return False


async def until_alive(mark: str, count: int) -> None:
    for _ in range(250):
        if len(alive(mark)) == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{count} processes were to have {mark} as an argument: {alive(mark)}")


def odd_sleep() -> str:
    """A duration that nobody else sleeps, to know our processes by."""
    return f"9{uuid.uuid4().int % 10**12}.5"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
async def test_the_exit_status_comes_back(launcher: Launcher, script: str, code: int) -> None:
    process = await launcher.start(shell(script), Container())
    assert await process.ended() == End(code)
    assert not process.running
    process.signal(signal.SIGKILL)  # no error


async def test_a_container_has_its_own_name_files_network_and_pids(
    launcher: Launcher, space: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text("10.244.1.7 pod-a\n")
    container = Container(space, "pod-a", ((str(tmp_path / "hosts"), "/etc/hosts"),))
    before = os.stat("/etc/hosts")
    text, end = await output(
        launcher, shell("hostname; cat /etc/hosts; ls /sys/class/net; echo /proc/[0-9]*; pwd; umask"), container
    )
    assert text.split("\n") == ["pod-a", "10.244.1.7 pod-a", "lo", "/proc/1 /proc/2 /proc/3", "/", "0022"] or (
        text.split("\n") == ["pod-a", "10.244.1.7 pod-a", "lo", "/proc/1 /proc/2", "/", "0022"]
    )
    assert end == End(0)
    assert (os.stat("/etc/hosts"), os.uname().nodename != "pod-a") == (before, True)


async def test_environment_and_working_directory_are_the_given_ones(launcher: Launcher, tmp_path: Path) -> None:
    program = Program(("sh", "-c", "pwd; env"), {**ENV, "GREETING": "a b\nc"}, str(tmp_path))
    text, _ = await output(launcher, program, Container())
    lines = text.split("\n")
    assert lines[0] == str(tmp_path)
    assert {"GREETING=a b", "c"} <= set(lines)
    assert not any(line.startswith("HOME=") for line in lines)


async def test_an_environment_larger_than_any_message_arrives(launcher: Launcher) -> None:
    env = {**ENV, **{f"V{number}": "x" * 1000 for number in range(900)}}
    text, _ = await output(launcher, Program(("sh", "-c", "env | grep -c ^V"), env), Container())
    assert text == "900"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (Program(("no-such-program",), ENV), r'exec: "no-such-program": executable file not found in \$PATH'),
        (Program(("/etc",), ENV), r'exec: "/etc": Permission denied'),
        (Program(("true",), ENV, "/no-such-directory"), r'chdir to cwd \("/no-such-directory"\): No such file'),
        (Program(("echo", "a\0b"), ENV), r'exec: "echo": embedded null byte'),
    ],
)
async def test_what_cannot_run_is_told(launcher: Launcher, program: Program, message: str) -> None:
    with pytest.raises(StartFailed, match=message):
        await launcher.start(program, Container())


async def test_a_file_that_cannot_be_laid_over_is_told(launcher: Launcher) -> None:
    with pytest.raises(StartFailed, match="mount on /etc/no-such-file: No such file"):
        await launcher.start(shell("true"), Container(binds=(("/etc/hosts", "/etc/no-such-file"),)))


async def test_sigterm_reaches_the_main_process_and_its_children_die_with_it(launcher: Launcher) -> None:
    mark = odd_sleep()
    process = await launcher.start(
        shell(f"trap 'exit 7' TERM; setsid sleep {mark} & while :; do sleep 0.01; done"), Container()
    )
    await until_alive(mark, 1)
    process.signal(signal.SIGTERM)
    assert await process.ended() == End(7)
    assert await all_gone(mark)


async def test_a_program_that_handles_no_signal_ends_at_sigterm(launcher: Launcher) -> None:
    process = await launcher.start(Program(("sleep", "1000"), ENV), Container())
    process.signal(signal.SIGTERM)
    assert await process.ended() == End(143)


async def test_sigkill_ends_everything_in_the_container(launcher: Launcher) -> None:
    mark = odd_sleep()
    process = await launcher.start(shell(f"trap '' TERM; setsid sleep {mark} & sleep {mark}"), Container())
    await until_alive(mark, 2)
    process.signal(signal.SIGTERM)
    await asyncio.sleep(0.1)
    assert process.running
    process.signal(signal.SIGKILL)
    assert await process.ended() == End(137)
    assert await all_gone(mark)


async def test_a_process_beside_a_container_sees_what_it_sees(launcher: Launcher, space: str) -> None:
    container = await launcher.start(Program(("sleep", "1000"), ENV), Container(space, "pod-b"))
    text, end = await output(launcher, shell("hostname; ls /sys/class/net; cat /proc/2/comm; exit 4"), container)
    assert (text.split(), end) == (["pod-b", "lo", "sleep"], End(4))


async def test_a_process_beside_a_container_dies_with_it(launcher: Launcher) -> None:
    container = await launcher.start(Program(("sleep", "1000"), ENV), Container())
    beside = await launcher.join(Program(("sleep", "1000"), ENV), container)
    container.signal(signal.SIGKILL)
    assert await beside.ended() == End(137)


async def test_what_cannot_run_beside_a_container_ends_with_127_and_says_why(launcher: Launcher) -> None:
    container = await launcher.start(Program(("sleep", "1000"), ENV), Container())
    end = await (await launcher.join(Program(("no-such-program",), ENV), container)).ended()
    assert end == End(127, 'exec: "no-such-program": executable file not found in $PATH')


async def test_two_hundred_short_lives_are_all_told(launcher: Launcher) -> None:
    container = await launcher.start(Program(("sleep", "1000"), ENV), Container())

    async def once(number: int) -> End:
        return await (await launcher.join(shell(f"exit {number}"), container)).ended()

    ends = await asyncio.gather(*(once(number) for number in range(200)))
    assert ends == [End(number) for number in range(200)]


async def test_no_descriptor_is_left_open(launcher: Launcher) -> None:
    async def once() -> None:
        await (await launcher.start(shell("exit 0"), Container())).ended()
        with pytest.raises(StartFailed):
            await launcher.start(Program(("no-such-program",), ENV), Container())
        await asyncio.sleep(0)

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await once()
    for _ in range(500):  # that a pipe has ended may come after the program has
        if len(os.listdir("/proc/self/fd")) <= before:
            return
        await asyncio.sleep(0.01)
    pytest.fail("descriptors are left open")


async def test_a_starter_that_is_cancelled_leaves_no_process(launcher: Launcher) -> None:
    mark = odd_sleep()
    task = asyncio.ensure_future(launcher.start(Program(("sleep", mark), ENV), Container()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.1)
    assert await all_gone(mark)


async def test_the_end_of_the_launcher_is_the_end_of_all_it_started() -> None:
    mark = odd_sleep()
    async with Launcher() as launcher:
        process = await launcher.start(Program(("sleep", mark), ENV), Container())
        assert alive(mark)
    assert await all_gone(mark)
    with pytest.raises(Unavailable, match="launcher"):
        await launcher.start(Program(("sleep", mark), ENV), Container())
    assert not process.running or await process.ended()


AGENT = """
import asyncio
from clusterip.kernel.processes import *
async def main():
    async with Launcher() as launcher:
        program = Program(("sh", "-c", f"setsid sleep {MARK} & sleep {MARK}"), {"PATH": "/usr/bin:/bin"})
        await launcher.start(program, Container())
        print(launcher._process.pid, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("victim", ["agent", "launcher"])
def test_kill_9_of_the_agent_or_the_launcher_leaves_no_process(victim: str) -> None:
    mark = odd_sleep()
    code = f"MARK = '{mark}'\n{AGENT}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        try:
            launcher = int(agent.stdout.readline())
            asyncio.run(until_alive(mark, 2))
            os.kill(agent.pid if victim == "agent" else launcher, signal.SIGKILL)
            assert asyncio.run(all_gone(mark))
        finally:
            agent.kill()
