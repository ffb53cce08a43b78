"""`clusterip apiserver` as a process: its options, TLS, inherited sockets, and its end."""

import asyncio
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.cli.calling import called

from clusterip.cli.apiserver import address_and_port, port_range, service_cidrs
from clusterip.errors import BadInput
from clusterip.lab.certificates import Authority

PROGRAM = (sys.executable, "-c", "from clusterip.cli.main import main; main()", "apiserver")


@asynccontextmanager
async def process(listener: socket.socket, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The server on a socket that was opened here; it is killed if it does not end by itself."""
    fd, address = listener.fileno(), f"127.0.0.1:{listener.getsockname()[1]}"
    started = await asyncio.create_subprocess_exec(
        *PROGRAM, "--listen-fd", str(fd), *options, pass_fds=(fd,), stderr=asyncio.subprocess.PIPE
    )
    listener.close()  # or who connects after the server's end would wait in our queue
    try:
        yield started, address
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@pytest.fixture
def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def ended(started: asyncio.subprocess.Process) -> tuple[int, str]:
    async with asyncio.timeout(20):
        _, said = await started.communicate()
    return started.returncode or 0, said.decode()


async def failed(*options: str) -> str:
    """What it says before it ends with status 2, having started nothing."""
    started = await asyncio.create_subprocess_exec(*PROGRAM, *options, stderr=asyncio.subprocess.PIPE)
    code, said = await ended(started)
    assert code == 2, said
    assert "Traceback" not in said
    return said


async def test_it_serves_tls_and_tokens_and_ends_when_told(tmp_path: Path, listener: socket.socket) -> None:
    authority = Authority("test")
    pair = authority.serving("apiserver", ("127.0.0.1",))
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    (tmp_path / "tokens").write_text("secret,admin,system:masters\n")
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    options = ("--tls-cert-file", "crt", "--tls-private-key-file", "key", "--token-auth-file", "tokens")
    files = [str(tmp_path / word) if not word.startswith("--") else word for word in options]
    async with (
        process(listener, "--data-dir", str(tmp_path / "store"), *files) as (started, address),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session,
    ):
        url = f"https://{address}/api/v1/namespaces/default/services"
        async with session.get(url) as answer:
            assert answer.status == 401
        headers = {"Authorization": "Bearer secret"}
        async with session.get(url, headers=headers) as answer:
            assert answer.status == 200
            assert [item["metadata"]["name"] for item in (await answer.json())["items"]] == ["kubernetes"]
        async with session.get(f"{url}?watch=true&resourceVersion=1", headers=headers) as watch:
            await watch.content.readline()
            started.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                await watch.content.read()  # its proper end: no broken stream
        assert (await ended(started))[0] == 0
    assert (tmp_path / "store" / "store.db").exists()


async def test_kill_9_loses_no_acknowledged_object(tmp_path: Path) -> None:
    names: list[str] = []
    for turn in range(3):
        async with (
            process(socket.create_server(("127.0.0.1", 0)), "--data-dir", str(tmp_path)) as (started, address),
            aiohttp.ClientSession() as session,
        ):
            url = f"http://{address}/api/v1/namespaces/default/configmaps"
            async with session.get(url) as answer:
                found = [item["metadata"]["name"] for item in (await answer.json())["items"]]
            assert set(names) <= set(found)

            async def write(task: int, turn: int = turn, url: str = url) -> None:
                for n in range(1000):
                    name = f"n{turn}-{task}-{n}"
                    try:
                        async with session.post(url, json={"metadata": {"name": name}}) as answer:
                            if answer.status == 201:
                                names.append(name)
                    except aiohttp.ClientError:
                        return

            writers = [asyncio.ensure_future(write(task)) for task in range(4)]
            await asyncio.sleep(0.3)
            started.kill()
            await asyncio.gather(*writers)
    assert names


async def test_without_tls_it_only_listens_on_loopback(tmp_path: Path) -> None:
    said = await failed("--store", "memory", "--listen", "0.0.0.0:0")
    assert "0.0.0.0 is not a loopback address, and there is no TLS" in said
    assert "hint: give --tls-cert-file" in said


async def test_a_file_or_a_socket_that_cannot_be_had_ends_it() -> None:
    missing = await failed("--store", "memory", "--listen", "127.0.0.1:0", "--token-auth-file", "/nowhere")
    assert "cannot be read" in missing
    assert "--listen-fd 77: not a socket of ours" in await failed("--store", "memory", "--listen-fd", "77")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--listen", "127.0.0.1:0"), "--store sqlite needs a directory"),
        (("--store", "memory"), "no address to listen on"),
        (("--store", "memory", "--listen", "here:1"), "--listen here:1: not ADDRESS:PORT"),
        (("--store", "memory", "--tls-cert-file", "x"), "one without the other"),
        (("--store", "memory", "--enable-admission-plugins", "Nothing"), "Nothing is not known"),
    ],
)
def test_options_that_cannot_be_are_said_to_be(options: Sequence[str], words: str) -> None:
    done = called("apiserver", *options)
    assert words in done.stderr
    assert done.status == 2


def test_addresses_ranges_and_ports_are_read() -> None:
    assert address_and_port("[::1]:6443") == ("::1", 6443)
    assert port_range("30000-32767") == (30000, 32767)
    assert port_range("30000+10") == (30000, 30010)
    assert [str(cidr) for cidr in service_cidrs("10.96.0.0/16, fd00:96::/112")] == ["10.96.0.0/16", "fd00:96::/112"]
    for text in ("10.96.0.0/30", "10.96.0.1/16", "10.96.0.0/16,10.97.0.0/16", "fd00::/48", "", "a"):
        with pytest.raises(BadInput):
            service_cidrs(text)
    for text in ("", "1", "2-1", "0-5", "1-70000", "a-b"):
        with pytest.raises(BadInput):
            port_range(text)
