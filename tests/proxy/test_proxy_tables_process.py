"""The whole command in nftables mode: without any program, its end, its clean-up, its start over another mode."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.client.fake_apiserver import FakeApiServer
from tests.proxy.process import Proxy, cleaned, kubeconfig, node_here, proxying, relayed, start
from tests.proxy.running import service, slice_of
from tests.proxy.test_proxy_packets import NODE_PORT, VIP, all_kinds, ask
from tests.proxy.world import NODE, OUTSIDE, POD_A, POD_B, World

from clusterip.model.resources import NODES, SERVICE_CIDRS

pytestmark = pytest.mark.kernel

CONFIG = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: MODE
hostnameOverride: node-1
clusterCIDR: 10.244.0.0/16
clientConnection: {kubeconfig: %s}
iptables: {syncPeriod: 500ms, minSyncPeriod: 1ms}
nftables: {syncPeriod: 500ms, minSyncPeriod: 1ms}
"""


NO_PROGRAMS = "import os; os.environ['PATH'] = '/nowhere'; "  # no nft, no iptables, no conntrack
CIDR = {"kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}}


def in_mode(mode: str, net: World, folder: Path, first: str = "") -> AbstractAsyncContextManager[Proxy]:
    return proxying(net, folder, CONFIG.replace("MODE", mode), (SERVICE_CIDRS, CIDR), first=first)


def tables(net: World) -> list[str]:
    return [line for line in net.on_node("nft list tables").splitlines() if line.endswith(" clusterip")]


async def test_it_runs_no_program(net: World, tmp_path: Path) -> None:
    async with in_mode("nftables", net, tmp_path, NO_PROGRAMS) as proxy:
        await proxy.put(all_kinds(), slice_of("web", POD_B))
        assert await ask(net, POD_A, VIP) == (POD_B, POD_A)
        assert (await ask(net, OUTSIDE, NODE, NODE_PORT))[0] == POD_B
        status = await proxy.status()
        assert (status["mode"], status["failures"]) == ("nftables", 0)
        assert {f["variant"] for f in status["families"].values()} == {"nftables"}
        assert tables(net) == ["table ip clusterip", "table ip6 clusterip"]
        assert "10.96.0.0/16 drop" in net.on_node("nft list chain ip clusterip check-cluster-ips"), "from the API"
        code, metrics = await proxy.get("/metrics")
        assert code == 200
        assert "sync_proxy_rules_nftables_sync_failures_total" in metrics
        assert "iptables" not in metrics
    await cleaned(net)


async def test_a_signal_ends_it_the_table_stays_and_the_next_one_takes_over(net: World, tmp_path: Path) -> None:
    async with in_mode("nftables", net, tmp_path) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        proxy.process.send_signal(signal.SIGTERM)
        _, said = await proxy.process.communicate()
        assert (proxy.process.returncode, b"Traceback" in said) == (0, False)
    assert (await ask(net, POD_A, VIP))[0] == POD_B
    async with in_mode("nftables", net, tmp_path) as proxy:
        await proxy.put(service(), slice_of("web", POD_A))
        assert (await ask(net, OUTSIDE, VIP))[0] == POD_A
    await cleaned(net)
    assert tables(net) == []


async def test_each_mode_takes_the_other_away_once_its_own_rules_are_complete(net: World, tmp_path: Path) -> None:
    for mode, other in (("iptables", "nftables"), ("nftables", "iptables"), ("iptables", "nftables")):
        async with in_mode(mode, net, tmp_path) as proxy:
            await proxy.put(service(), slice_of("web", POD_B))
            async with asyncio.timeout(10):
                while ("KUBE-SERVICES" in net.rules(), bool(tables(net))) != (mode == "iptables", mode == "nftables"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (await ask(net, POD_A, VIP))[0] == POD_B, (mode, other)
    await cleaned(net)
    assert ("KUBE-SERVICES" in net.rules(), tables(net)) == (False, [])


async def test_a_kernel_without_nf_tables_is_one_clear_sentence(net: World, tmp_path: Path) -> None:
    """As a user without privileges sees it: the kernel refuses alike."""
    config = tmp_path / "proxy.yaml"
    async with FakeApiServer() as server, relayed(net.node, server.url) as url:
        await server.put(NODES, node_here())
        config.write_text(CONFIG.replace("MODE", "nftables") % kubeconfig(tmp_path / "kubeconfig", url))
        drop = "from clusterip.kernel import nftables as k; k.SUBSYSTEM = 250; "
        process = await start(net.node, "--config", str(config), first=drop)
        _, said = await process.communicate()
    assert process.returncode == 1
    assert "nf_tables" in said.decode()
    assert "--proxy-mode iptables" in said.decode()
    assert "Traceback" not in said.decode()
