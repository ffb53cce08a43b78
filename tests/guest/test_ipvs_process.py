"""The whole command in IPVS mode: it serves, mends, takes over from other modes and is taken away by them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.client.fake_apiserver import FakeApiServer
from tests.proxy.process import Proxy, cleaned, kubeconfig, node_here, relayed, start
from tests.proxy.running import service, slice_of
from tests.proxy.test_proxy_packets import NODE_PORT, VIP, all_kinds, ask
from tests.proxy.world import NODE, OUTSIDE, POD_A, POD_B, World, world

from clusterip.model.resources import NODES

pytestmark = pytest.mark.kernel

CONFIG = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: node-1
clusterCIDR: 10.244.0.0/16
clientConnection: {kubeconfig: %s}
ipvs: {syncPeriod: 1s, scheduler: %s}
"""
PATIENCE = 180  # seconds: a guest without KVM is slow to start a program
LINGER = 200  # seconds: what serves connections of IPVS goes when they do, two minutes after their last packet


@pytest.fixture(scope="module")
def net() -> Iterator[World]:
    with world() as made:
        for address in (POD_A, POD_B):
            made.serve(address)
        yield made


@contextlib.asynccontextmanager
async def proxying(net: World, folder: Path, mode: str, scheduler: str = "rr") -> AsyncIterator[Proxy]:
    async with FakeApiServer() as server, relayed(net.node, server.url) as url:
        await server.put(NODES, node_here())
        config = folder / f"{mode}.yaml"
        config.write_text(CONFIG % (mode, kubeconfig(folder / "kubeconfig", url), scheduler))
        process = await start(net.node, "--config", str(config))
        made = Proxy(net, server, process, config)
        try:
            async with asyncio.timeout(PATIENCE):
                while not (await made.status()).get("syncs"):
                    assert process.returncode is None, (await process.communicate())[1].decode()
                    await asyncio.sleep(0.2)
            yield made
        finally:
            if process.returncode is None:
                process.terminate()
            print((await process.communicate())[1].decode())  # noqa: T201  pytest shows it where a test fails


def shown(net: World) -> tuple[bool, bool, bool, bool]:
    """Whose rules are there: IPVS mode's chains, its device, iptables mode's chains, the table of nftables mode."""
    rules, links, tables = net.rules(), net.on_node("ip -o link"), net.on_node("nft list tables")
    return ":KUBE-IPVS-FILTER" in rules, "kube-ipvs0" in links, ":KUBE-NODEPORTS" in rules, "ip clusterip\n" in tables


async def becomes(net: World, wanted: tuple[bool, bool, bool, bool]) -> None:
    async with asyncio.timeout(LINGER):
        while await asyncio.to_thread(shown, net) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def test_it_serves_mends_gives_way_to_another_mode_and_takes_over_from_it(net: World, tmp_path: Path) -> None:
    async with proxying(net, tmp_path, "ipvs") as proxy:
        await serves(net, proxy)
        await mends(net, proxy)
    async with proxying(net, tmp_path, "iptables") as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        assert (await ask(net, POD_A, VIP))[0] == POD_B
        await becomes(net, (False, False, True, False))
    async with proxying(net, tmp_path, "ipvs") as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        await becomes(net, (True, True, False, False))
        assert (await ask(net, POD_A, VIP))[0] == POD_B
    await cleaned(net)
    assert await asyncio.to_thread(shown, net) == (False, False, False, False)
    assert net.on_node("ipset list -n") == ""


async def serves(net: World, proxy: Proxy) -> None:
    await proxy.put(all_kinds(), slice_of("web", POD_B))
    assert (await ask(net, POD_A, VIP))[0] == POD_B
    assert (await ask(net, OUTSIDE, NODE, NODE_PORT))[0] == POD_B
    status = await proxy.status()
    assert status["mode"] == "ipvs"
    assert status["families"]["IPv4"]["virtualServers"] > 1


async def mends(net: World, proxy: Proxy) -> None:
    await asyncio.to_thread(net.on_node, "ip link del kube-ipvs0", "iptables -t nat -F KUBE-SERVICES")
    async with asyncio.timeout(PATIENCE):
        while not (status := await proxy.status())["repairs"] or status["pending"]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert (await ask(net, POD_A, VIP))[0] == POD_B


async def test_clean_up_after_a_mode_that_had_no_time_for_its_own(net: World, tmp_path: Path) -> None:
    """What two modes left at once goes in one clean-up."""
    async with proxying(net, tmp_path, "iptables"):
        pass
    async with proxying(net, tmp_path, "ipvs"):
        pass
    await cleaned(net)
    assert await asyncio.to_thread(shown, net) == (False, False, False, False)
