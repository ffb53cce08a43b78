"""The whole command in a node's namespace: its servers, its health check ports, its end, its clean-up."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.client.fake_apiserver import FakeApiServer
from tests.proxy.process import Proxy, cleaned, kubeconfig, node_here, proxying, relayed, start
from tests.proxy.running import service, slice_of
from tests.proxy.world import NODE, OUTSIDE, POD_B, World

from clusterip.kernel import sysctl
from clusterip.model.resources import EVENTS, NODES

pytestmark = pytest.mark.kernel

CHECK_PORT = 32111
CONFIG = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: node-1
clusterCIDR: 10.244.0.0/16
clientConnection: {kubeconfig: %s}
iptables: {syncPeriod: 500ms, minSyncPeriod: 1ms}
"""


@pytest.fixture
async def proxy(net: World, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxying(net, tmp_path, CONFIG) as made:
        yield made
    await cleaned(net)


async def test_the_servers_answer_as_kube_proxys_do(proxy: Proxy) -> None:
    code, body = await proxy.get("/healthz", 10256)
    assert code == 200
    assert json.loads(body)["nodeEligible"] is True
    assert "lastUpdated" in body
    assert (await proxy.get("/livez", 10256))[0] == 200
    assert await proxy.get("/healthz") == (200, "ok")
    assert await proxy.get("/proxyMode") == (200, "iptables")
    configuration = json.loads((await proxy.get("/configz"))[1])["kubeproxy.config.k8s.io"]
    assert configuration["iptables"]["syncPeriod"] == "500ms"
    metrics = (await proxy.get("/metrics"))[1]
    for name in (
        "kubeproxy_sync_proxy_rules_duration_seconds_bucket",
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        "kubeproxy_network_programming_duration_seconds",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
        "kubeproxy_sync_proxy_rules_endpoint_changes_total",
        "kubeproxy_sync_proxy_rules_service_changes_pending",
        'kubeproxy_sync_proxy_rules_iptables_total{ip_family="IPv4",table="nat"} 5.0',
        'kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="internal"} 0.0',
        'kubeproxy_proxy_healthz_total{code="200"} 1.0',
        "kubeproxy_conntrack_reconciler_deleted_entries_total",
        "process_resident_memory_bytes",
        'kubernetes_feature_enabled{name="NFTablesProxyMode",stage=""} 1.0',
    ):
        assert name in metrics, name
    assert 'kubernetes_healthcheck{name="sync-proxy-rules",type="healthz"} 1.0' in (await proxy.get("/metrics/slis"))[1]
    assert any(key[0] is EVENTS and obj["reason"] == "Starting" for key, obj in proxy.server.objects.items())


async def test_a_health_check_node_port_opens_answers_and_closes(proxy: Proxy) -> None:
    local = service(
        type="LoadBalancer", node_port=30080, externalTrafficPolicy="Local", healthCheckNodePort=CHECK_PORT,
        status={"loadBalancer": {"ingress": [{"ip": "198.51.100.8"}]}},
    )  # fmt: skip
    await proxy.put(local, slice_of("web", POD_B))
    code, body = await proxy.get("/", CHECK_PORT)
    assert (code, json.loads(body)["localEndpoints"]) == (200, 1)
    assert (await asyncio.to_thread(proxy.net.ask, OUTSIDE, NODE, 30080))[0] == POD_B
    await proxy.put(slice_of("web", "10.244.2.2"))
    assert (await proxy.get("/", CHECK_PORT))[0] == 503
    local["spec"]["externalTrafficPolicy"] = "Cluster"
    del local["spec"]["healthCheckNodePort"]
    await proxy.put(local)
    assert (await proxy.get("/", CHECK_PORT))[0] == 0


async def test_a_file_that_says_the_same_in_other_words_changes_nothing(proxy: Proxy) -> None:
    proxy.config.write_text(proxy.config.read_text() + "\n")
    proxy.process.send_signal(signal.SIGHUP)
    await asyncio.sleep(0.5)
    assert (await proxy.status())["change"] is None
    assert (await proxy.get("/healthz"))[0] == 200


async def test_a_file_that_changes_what_a_running_proxy_cannot_take_over_ends_the_process(proxy: Proxy) -> None:
    proxy.config.write_text(proxy.config.read_text() + "nodePortAddresses: [primary]\n")
    async with asyncio.timeout(30):
        _, said = await proxy.process.communicate()
    assert proxy.process.returncode == 1
    assert b"proxy.yaml: the configuration has changed: nodePortAddresses" in said


async def refusal(proxy: Proxy, text: str) -> str:
    """What the proxy says of a configuration that it does not take. It goes on as it was."""
    before = proxy.config.read_text()
    proxy.config.write_text(text)
    proxy.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(30):
        while not (refused := (await proxy.status())["configuration"]["refused"]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await proxy.get("/proxyMode") == (200, "iptables")
    assert (await proxy.get("/healthz", 10256))[0] == 200
    assert "KUBE-SERVICES" in proxy.net.rules()
    assert "clusterip" not in proxy.net.on_node("nft list tables")
    proxy.config.write_text(before)
    proxy.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(30):
        while (await proxy.status())["configuration"]["refused"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return str(refused)


async def test_a_file_that_cannot_be_used_is_refused_and_what_is_in_force_stays(proxy: Proxy) -> None:
    text = proxy.config.read_text()
    assert "mode: 'userspace' is not a proxy mode" in await refusal(
        proxy, text.replace("mode: iptables", "mode: userspace")
    )
    assert "is not YAML" in await refusal(proxy, text + "}\n")
    reasons = {obj["reason"] for key, obj in proxy.server.objects.items() if key[0] is EVENTS}
    assert "ConfigurationRefused" in reasons


async def test_settings_of_the_mode_in_force_are_taken_over_and_others_noted(proxy: Proxy) -> None:
    text = proxy.config.read_text()
    proxy.config.write_text(text + "nftables: {masqueradeAll: true}\n")
    proxy.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(30):
        while '"masqueradeAll": true' not in (await proxy.get("/configz"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await proxy.status())["change"] is None
    await proxy.put(service(), slice_of("web", POD_B))
    proxy.config.write_text(text.replace("minSyncPeriod: 1ms", "minSyncPeriod: 1ms, masqueradeAll: true"))
    proxy.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(30):
        while ((await proxy.status())["change"] or {}).get("phase") != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await asyncio.to_thread(proxy.net.ask, OUTSIDE, "10.96.0.10"))[0] == POD_B
    assert "! -s 10.244.0.0/16" not in proxy.net.rules()


async def test_a_signal_ends_it_and_the_rules_stay(proxy: Proxy) -> None:
    await proxy.put(service(), slice_of("web", POD_B))
    proxy.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        _, said = await proxy.process.communicate()
    assert proxy.process.returncode == 0, said.decode()
    assert b"Traceback" not in said
    assert (await asyncio.to_thread(proxy.net.ask, OUTSIDE, "10.96.0.10"))[0] == POD_B
    await cleaned(proxy.net)
    assert "KUBE-S" not in proxy.net.rules()


async def test_timeouts_of_connection_tracking_are_set_in_our_namespace_only(net: World) -> None:
    before = sysctl.read("net.netfilter.nf_conntrack_tcp_timeout_close_wait")
    process = await start(net.node, "--proxy-mode=iptables", "--init-only", "--conntrack-tcp-timeout-close-wait=47m")
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert net.on_node("sysctl -n net.netfilter.nf_conntrack_tcp_timeout_close_wait").strip() == "2820"
    assert net.on_node("sysctl -n net.ipv4.conf.all.route_localnet").strip() == "1"
    assert sysctl.read("net.netfilter.nf_conntrack_tcp_timeout_close_wait") == before


async def test_a_missing_kubeconfig_is_noticed_before_anything_is_set(net: World) -> None:
    kernel_setting = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"
    before = net.on_node(f"sysctl -n {kernel_setting}")
    process = await start(net.node, "--kubeconfig", "/no/such", "--conntrack-tcp-timeout-close-wait=41m")
    await process.communicate()
    assert process.returncode == 2
    assert net.on_node(f"sysctl -n {kernel_setting}") == before


async def test_a_signal_to_a_proxy_that_was_started_with_flags_is_answered(net: World, tmp_path: Path) -> None:
    async with FakeApiServer() as server, relayed(net.node, server.url) as url:
        await server.put(NODES, node_here())
        known = kubeconfig(tmp_path / "kubeconfig", url)
        process = await start(net.node, "--kubeconfig", str(known), "--hostname-override=node-1")
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"proxy.sync.done" not in await process.stderr.readline():
                pass
            process.send_signal(signal.SIGHUP)
            while b"there is no file to read again" not in await process.stderr.readline():
                pass
        process.terminate()
        await process.communicate()
        assert process.returncode == 0
    await cleaned(net)


async def test_the_log_is_json_where_that_is_asked_for(net: World) -> None:
    process = await start(net.node, "--init-only", "--logging-format=json", "--conntrack-tcp-timeout-close-wait=46m")
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    lines = [json.loads(line) for line in said.decode().splitlines()]
    assert any("nf_conntrack_tcp_timeout_close_wait value=2760" in line["msg"] for line in lines)


async def test_a_table_of_the_nftables_mode_is_taken_away(net: World) -> None:
    net.on_node("nft add table ip kube-proxy", "nft add table ip other")
    await cleaned(net)
    assert net.on_node("nft list tables").count("kube-proxy") == 0
    assert "table ip other" in net.on_node("nft list tables")


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (("--config", "/no/such"), "/no/such: cannot be read: No such file or directory"),
        (("--kubeconfig", "/no/such"), "kubeconfig /no/such: cannot be read"),
        (("--proxy-mode", "userspace"), "mode: 'userspace' is not a proxy mode; available: iptables, ipvs, nftables"),
        (("--iptables-sync-period", "soon"), "'soon' is not a duration"),
    ],
)
async def test_what_cannot_be_used_is_a_clear_error_and_no_traceback(
    net: World, argv: tuple[str, ...], what: str
) -> None:
    process = await start(net.node, *argv)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert what in said.decode()
    assert "Traceback" not in said.decode()
