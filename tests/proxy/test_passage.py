"""What is in the way between IPVS and eBPF mode, and that it is waited for."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from tests.client.fake_apiserver import FakeApiServer
from tests.waiting import until

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.errors import Unavailable
from clusterip.kernel import netns as namespaces
from clusterip.kernel.run import run
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.events import Events
from clusterip.proxy.passage import Passage
from clusterip.proxy.reload import Moved, Reload
from clusterip.services.table import Backend, Entry, PortName

pytestmark = pytest.mark.kernel

TRANSLATED = ("add table ip t; add chain ip t n { type nat hook output priority -100; }; "
              "add rule ip t n ip daddr 127.0.0.2 tcp dport 80 dnat to 127.0.0.1:8080")  # fmt: skip


def entries() -> tuple[Entry, ...]:
    backend = Backend("127.0.0.1", 8080)
    return (Entry(PortName("default", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", cluster=(backend,)),)


def connected(netns: str, address: str = "127.0.0.1", port: int = 8080) -> socket.socket:
    with namespaces.inside(netns):
        made = socket.create_connection((address, port), timeout=5)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is the connection's
    return made


async def test_sockets_that_began_connections_to_backends_are_waited_for_and_nobody_elses(
    netns: str, tmp_path: Path
) -> None:
    await run(("ip", "link", "set", "lo", "up"), netns=netns)
    await run(("nft", TRANSLATED), netns=netns)
    passage = Passage(str(tmp_path), netns)
    with namespaces.inside(netns):
        listener = socket.create_server(("127.0.0.1", 8080))
        elsewhere = socket.create_server(("127.0.0.1", 9090))
    with listener, elsewhere, connected(netns, port=9090), connected(netns, "127.0.0.2", 80):
        assert "sockets of eBPF mode" in await passage.obstacle("ebpf", "ipvs", entries)
        with connected(netns), connected(netns):
            said = await passage.obstacle("nftables", "ipvs", entries)
            assert said == "2 connections that sockets of eBPF mode began go on"
            later = connected(netns)
        with later:
            assert await passage.obstacle("nftables", "ipvs", entries) == "", "what began later has not been a socket's"


async def test_a_mode_that_sockets_are_not_concerned_with_has_no_obstacle(netns: str, tmp_path: Path) -> None:
    passage = Passage(str(tmp_path), netns)
    assert await passage.obstacle("ebpf", "iptables", entries) == ""
    assert await passage.obstacle("iptables", "ipvs", entries) == "", "none has gone on"
    assert await passage.obstacle("iptables", "ebpf", entries) == ""


async def test_ipvs_mode_is_in_the_way_of_sockets_until_its_device_has_gone(netns: str, tmp_path: Path) -> None:
    passage = Passage(str(tmp_path), netns)
    assert await passage.obstacle("ipvs", "ebpf", entries) != ""
    await run(("ip", "link", "add", "kube-ipvs0", "type", "bridge"), netns=netns)
    assert await passage.obstacle("nftables", "ebpf", entries) == "connections of IPVS mode go on"
    assert await passage.obstacle("", "ebpf", tuple) == "connections of IPVS mode go on"
    assert await passage.obstacle("nftables", "iptables", entries) == ""
    await run(("ip", "link", "del", "kube-ipvs0"), netns=netns)
    assert await passage.obstacle("nftables", "ebpf", entries) == ""


class Mover:
    """Between the modes while there is something in the way."""

    def __init__(self) -> None:
        self.waits = "two connections go on"
        self.refused = False
        self.asked: list[str] = []

    async def __call__(self, asked: ProxyConfig) -> Moved:
        self.asked.append(asked.mode)
        if self.refused:
            raise Unavailable("this kernel has no bpf(2)")
        if asked.mode == "ebpf" and self.waits:
            return Moved(msgspec.structs.replace(asked, mode="nftables"), self.waits)
        return Moved(asked)


@contextlib.asynccontextmanager
async def reloading(folder: Path, move: Mover) -> AsyncIterator[tuple[Reload, Path]]:
    """A proxy in IPVS mode, and its file."""
    file = folder / "proxy.yaml"
    file.write_text("ipvs")
    async with FakeApiServer() as server, Api(Connection(server.url)) as api:
        events = Events(api, "node-1")
        reload = Reload(ProxyConfig(mode="ipvs"), lambda: ProxyConfig(mode=file.read_text()), str(file), events)
        task = asyncio.create_task(reload.run(move))
        try:
            yield reload, file
        finally:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_waits_follows_by_itself_and_gives_way_to_what_is_asked_meanwhile(tmp_path: Path) -> None:
    move = Mover()
    async with reloading(tmp_path, move) as (reload, file):
        await ask(reload, file, "ebpf", lambda: reload.config.mode == "nftables")
        assert (reload.status()["follows"], reload.status()["waits"]) == ("ebpf", "two connections go on")
        await until(lambda: len(move.asked) >= 2)
        assert reload.config.mode == "nftables"
        await ask(reload, file, "iptables", lambda: reload.config.mode == "iptables")
        assert reload.status()["follows"] == ""
        await ask(reload, file, "ebpf", lambda: reload.config.mode == "nftables")
        move.waits = ""
        await until(lambda: reload.config.mode == "ebpf")
        assert (reload.status()["follows"], reload.status()["waits"]) == ("", "")
        assert set(move.asked) == {"ebpf", "iptables"}


async def test_what_is_refused_after_the_wait_is_not_tried_for_ever(tmp_path: Path) -> None:
    move = Mover()
    async with reloading(tmp_path, move) as (reload, file):
        await ask(reload, file, "ebpf", lambda: reload.config.mode == "nftables")
        move.refused = True
        await until(lambda: reload.status()["refused"] != "")
        tried = len(move.asked)
        await asyncio.sleep(2.5)
        assert len(move.asked) == tried
        assert (reload.config.mode, reload.status()["follows"]) == ("nftables", "")


async def ask(reload: Reload, file: Path, mode: str, holds: Callable[[], bool]) -> None:
    await asyncio.to_thread(file.write_text, mode)
    reload.hang_up()
    await until(holds)
