"""What clients see: real connections from pods, the node and outside, through rules the loop wrote."""

import asyncio
import contextlib
import errno
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.proxy.running import CONFIG, node_object, running, service, slice_of, until
from tests.proxy.world import (
    FAR,
    GATEWAY,
    GATEWAY6,
    NODE,
    OUTSIDE,
    OUTSIDE6,
    POD_A,
    POD_A6,
    POD_B,
    POD_B6,
    World,
    world,
)

from clusterip.dataplane.iptables import Config, FromCIDR
from clusterip.kernel import nfacct
from clusterip.kernel.iptables import VariantName
from clusterip.model.status import Object
from clusterip.proxy import prepare
from clusterip.proxy.metrics import INVALID_DROPPED, LOCALHOST_ACCEPTED
from clusterip.proxy.parts import Settings

pytestmark = pytest.mark.kernel

VIP, EXTERNAL, BALANCER, NODE_PORT = "10.96.0.10", "198.51.100.7", "198.51.100.8", 30080


@pytest.fixture(scope="module")
def net() -> Iterator[World]:
    with world() as made:
        for address in (POD_A, POD_B, FAR):
            made.serve(address)
        yield made


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> None:
    """Each test starts from empty tables and no flows."""
    net: World = request.getfixturevalue("net")
    for program in ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"):
        for table in ("nat", "filter", "mangle"):
            net.on_node(f"{program} -t {table} -F", f"{program} -t {table} -X")
    with contextlib.suppress(Exception):
        net.on_node("conntrack -F")


async def ask(net: World, client: str, address: str, port: int = 80, within: float = 2.0) -> tuple[str, str]:
    return await asyncio.to_thread(net.ask, client, address, port, within)


def all_kinds(**spec: Any) -> Object:
    return service(
        type="LoadBalancer",
        node_port=NODE_PORT,
        externalIPs=[EXTERNAL],
        externalTrafficPolicy="Cluster",
        status={"loadBalancer": {"ingress": [{"ip": BALANCER}]}},
        **spec,
    )


# Client, then which source address the backend must see: to the ClusterIP; to external addresses under the Cluster
# policy; to external addresses under the Local policy (conformance: the masquerade matrix). The backend is POD_B,
# behind the node, so a masqueraded packet carries the bridge's address.
MATRIX = [
    (POD_A, POD_A, GATEWAY, POD_A),
    (NODE, GATEWAY, GATEWAY, GATEWAY),
    (OUTSIDE, GATEWAY, GATEWAY, OUTSIDE),
]


@pytest.mark.parametrize("variant", ["nft", "legacy"])
async def test_source_addresses_are_kept_or_hidden_by_the_matrix(net: World, variant: VariantName) -> None:
    async with running(net.node, variant=variant) as proxy:
        for client, to_cluster_ip, under_cluster, under_local in MATRIX:
            await proxy.put(all_kinds(), slice_of("web", POD_B))
            targets = ((EXTERNAL, 80), (BALANCER, 80), (NODE, NODE_PORT))
            assert await ask(net, client, VIP) == (POD_B, to_cluster_ip)
            for address, port in targets:
                assert await ask(net, client, address, port) == (POD_B, under_cluster), (client, address)
            local = all_kinds()
            local["spec"]["externalTrafficPolicy"] = "Local"
            await proxy.put(local)
            for address, port in targets:
                assert await ask(net, client, address, port) == (POD_B, under_local), (client, address, "Local")


async def test_without_a_detector_nothing_to_the_cluster_ip_is_hidden(net: World) -> None:
    async with running(net.node, config=replace(CONFIG, detector=None)) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        assert await ask(net, OUTSIDE, VIP) == (POD_B, OUTSIDE)


async def test_masquerade_all_hides_pods_too(net: World) -> None:
    async with running(net.node, config=replace(CONFIG, masquerade_all=True)) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        assert await ask(net, POD_A, VIP) == (POD_B, GATEWAY)


VIP6 = "fd00:96::10"
CONFIG6 = Config(family="IPv6", node_ip="fd00:50::11", detector=FromCIDR("fd00:1::/32"))


@pytest.mark.parametrize("variant", ["nft", "legacy"])
async def test_ipv6_keeps_and_hides_source_addresses_alike(net: World, variant: VariantName) -> None:
    async with running(net.node, config=CONFIG6, variant=variant) as proxy:
        await proxy.put(service(address=VIP6), slice_of("web", POD_B6))
        assert await ask(net, POD_A, VIP6) == (POD_B, POD_A6)
        assert await ask(net, NODE, VIP6) == (POD_B, GATEWAY6)
        assert (await ask(net, OUTSIDE, VIP6))[1] != OUTSIDE6
        await proxy.put(slice_of("web", POD_A6))
        assert (await ask(net, POD_A, VIP6))[1] == GATEWAY6, "the hairpin"
        gone = slice_of("web", POD_A6)
        gone["endpoints"] = []
        await proxy.put(gone)
        # Over IPv6 the kernel drops a refusal that comes back before the SYN's own call has ended, as between the
        # namespaces of one machine (TcpExtLockDroppedIcmps): the second SYN, a second later, is refused.
        for client in (POD_A, NODE):
            assert refusal(net, client, VIP6, 80) < 2.5


async def test_a_udp_flow_over_ipv6_moves_when_its_backend_goes(net: World) -> None:
    async with running(net.node, config=CONFIG6) as proxy:
        await proxy.put(service(address=VIP6, protocol="UDP"), slice_of("web", POD_A6, protocol="UDP"))
        talker = udp(net, OUTSIDE, VIP6)
        with contextlib.closing(talker):
            assert await asyncio.to_thread(talker.ask) == POD_A
            await proxy.put(slice_of("web", POD_B6, protocol="UDP"))
            assert await asyncio.to_thread(talker.ask) == POD_B


async def test_a_pod_reaches_itself_through_its_service(net: World) -> None:
    async with running(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_A))
        assert await ask(net, POD_A, VIP) == (POD_A, GATEWAY)


async def test_local_external_policy_with_no_backend_here_drops_outsiders_and_serves_pods(net: World) -> None:
    async with running(net.node) as proxy:
        local = all_kinds()
        local["spec"]["externalTrafficPolicy"] = "Local"
        await proxy.put(local, slice_of("web", FAR))
        with pytest.raises(TimeoutError):
            await ask(net, OUTSIDE, EXTERNAL, within=0.4)
        assert (await ask(net, POD_A, EXTERNAL)) == (FAR, POD_A)
        assert (await ask(net, NODE, EXTERNAL))[0] == FAR


async def test_local_internal_policy_with_no_backend_here_drops(net: World) -> None:
    async with running(net.node) as proxy:
        await proxy.put(service(internalTrafficPolicy="Local"), slice_of("web", FAR))
        for client in (POD_A, NODE):
            with pytest.raises(TimeoutError):
                await ask(net, client, VIP, within=0.4)
        await proxy.put(slice_of("web", FAR, POD_B))
        assert {(await ask(net, POD_A, VIP))[0] for _ in range(10)} == {POD_B}


@pytest.mark.parametrize("client", [POD_A, NODE, OUTSIDE])
async def test_no_backend_is_a_refusal_at_once(net: World, client: str) -> None:
    async with running(net.node) as proxy:
        await proxy.put(all_kinds(), slice_of("web"))
        # kube-proxy refuses external addresses in INPUT and FORWARD only: the node's own packets there go unanswered.
        external = ((EXTERNAL, 80),) if client != NODE else ()
        for address, port in ((VIP, 80), (NODE, NODE_PORT), *external):
            fastest = min(refusal(net, client, address, port) for _ in range(5))
            assert fastest < 0.005, (address, fastest)
        await proxy.put(slice_of("web", POD_B))
        assert (await ask(net, client, VIP))[0] == POD_B


def refusal(net: World, client: str, address: str, port: int) -> float:
    """Seconds until the connection was refused."""
    with net.socket(client, six=":" in address) as connection:
        started = time.perf_counter()
        with pytest.raises(OSError) as caught:  # noqa: PT011  the number is checked
            connection.connect((address, port))
        assert caught.value.errno == errno.ECONNREFUSED
        return time.perf_counter() - started


async def test_connections_spread_over_the_backends(net: World) -> None:
    async with running(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_A, POD_B, FAR))
        seen = await asyncio.to_thread(lambda: Counter(net.ask(OUTSIDE, VIP)[0] for _ in range(300)))
    # Chi-square of 300 over 3, two degrees of freedom: above 18.4 once in ten thousand runs.
    assert sum((n - 100) ** 2 / 100 for n in seen.values()) < 18.4
    assert len(seen) == 3


async def test_an_affine_client_stays_and_moves_after_its_timeout(net: World) -> None:
    affine = service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}})
    async with running(net.node) as proxy:
        await proxy.put(affine, slice_of("web", POD_A, POD_B, FAR))
        first = {(await ask(net, OUTSIDE, VIP))[0] for _ in range(15)}
        assert len(first) == 1
        others = [a for a in (POD_A, POD_B, FAR) if a not in first]
        await proxy.put(slice_of("web", *first, others[0]))
        assert {(await ask(net, OUTSIDE, VIP))[0] for _ in range(5)} == first, "others' changes move nobody"
        await proxy.put(slice_of("web", *others))
        assert (await ask(net, OUTSIDE, VIP))[0] in others
        await proxy.put(slice_of("web", POD_A, POD_B, FAR))
        seen = set()
        for _ in range(12):
            await asyncio.sleep(1.2)
            seen.add((await ask(net, OUTSIDE, VIP))[0])
            if len(seen) > 1:
                break
        assert len(seen) > 1, "after its timeout a client is drawn anew"


async def test_source_ranges_keep_others_from_the_load_balancer_only(net: World) -> None:
    async with running(net.node) as proxy:
        await proxy.put(all_kinds(loadBalancerSourceRanges=["203.0.113.0/24"]), slice_of("web", POD_B))
        assert (await ask(net, OUTSIDE, BALANCER))[0] == POD_B
        with pytest.raises(TimeoutError):
            await ask(net, POD_A, BALANCER, within=0.4)
        assert (await ask(net, POD_A, EXTERNAL))[0] == POD_B
        assert (await ask(net, POD_A, NODE, NODE_PORT))[0] == POD_B
        await proxy.put(all_kinds(loadBalancerSourceRanges=["192.0.2.0/24"]))
        with pytest.raises(TimeoutError):
            await ask(net, OUTSIDE, BALANCER, within=0.4)


async def test_a_node_port_answers_on_loopback_and_is_counted(net: World) -> None:
    assert nfacct.ensure(LOCALHOST_ACCEPTED, net.node)
    assert nfacct.ensure(INVALID_DROPPED, net.node)
    before = nfacct.read(LOCALHOST_ACCEPTED, net.node)
    prepare.route_localnet(net.node)
    async with running(net.node, config=replace(CONFIG, nfacct=True)) as proxy:
        await proxy.put(all_kinds(), slice_of("web", POD_B))
        assert (await ask(net, NODE, "127.0.0.1", NODE_PORT)) == (POD_B, GATEWAY)
        after = nfacct.read(LOCALHOST_ACCEPTED, net.node)
        assert before is not None
        assert after is not None
        assert after.packets == before.packets + 1
    async with running(net.node, config=replace(CONFIG, localhost_node_ports=False)) as proxy:
        await proxy.put(all_kinds(), slice_of("web", POD_B))
        with pytest.raises(ConnectionRefusedError):
            await ask(net, NODE, "127.0.0.1", NODE_PORT)
        assert (await ask(net, NODE, NODE, NODE_PORT))[0] == POD_B


async def test_a_connection_outlives_the_changes_around_it(net: World) -> None:
    async with running(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        with net.socket(OUTSIDE) as connection:
            connection.connect((VIP, 80))
            await proxy.put(slice_of("web", POD_A, FAR))
            assert connection.getpeername()[0] == VIP
            assert (await asyncio.to_thread(connection.recv, 100)).split()[0] == POD_B.encode()


def udp(net: World, client: str, address: str, port: int = 80) -> "Talker":
    return Talker(net.socket(client, socket.SOCK_DGRAM, timeout=0.3, six=":" in address), (address, port))


class Talker:
    """One UDP flow: the same socket, so the same source port, again and again."""

    def __init__(self, end: socket.socket, to: tuple[str, int]) -> None:
        end.connect(to)
        self._end = end

    def ask(self) -> str:
        """Who answers; "" if nobody does."""
        try:
            self._end.send(b"?")
            return self._end.recv(200).decode().split()[0]
        except OSError:
            return ""

    def close(self) -> None:
        self._end.close()


@pytest.mark.parametrize(("client", "address", "port"), [(POD_A, VIP, 80), (NODE, VIP, 80), (OUTSIDE, NODE, NODE_PORT)])
async def test_a_udp_flow_moves_when_its_backend_goes(net: World, client: str, address: str, port: int) -> None:
    spec = service(protocol="UDP", type="NodePort", node_port=NODE_PORT)
    async with running(net.node) as proxy:
        await proxy.put(spec, slice_of("web", POD_B, protocol="UDP"))
        talker = udp(net, client, address, port)
        with contextlib.closing(talker):
            assert await asyncio.to_thread(talker.ask) == POD_B
            await proxy.put(slice_of("web", POD_B, FAR, protocol="UDP"))
            assert await asyncio.to_thread(talker.ask) == POD_B, "a flow whose backend serves stays"
            await proxy.put(slice_of("web", FAR, protocol="UDP"))
            assert await asyncio.to_thread(talker.ask) == FAR


async def test_a_udp_flow_that_was_there_before_the_backend_reaches_it(net: World) -> None:
    async with running(net.node) as proxy:
        talker = udp(net, POD_A, VIP)
        with contextlib.closing(talker):
            assert await asyncio.to_thread(talker.ask) == ""
            await proxy.put(service(protocol="UDP"), slice_of("web", protocol="UDP"))
            assert await asyncio.to_thread(talker.ask) == ""
            await proxy.put(slice_of("web", POD_B, protocol="UDP"))
            assert await asyncio.to_thread(talker.ask) == POD_B


async def test_a_udp_flow_that_began_while_rules_were_missing_reaches_its_backend(net: World) -> None:
    async with running(net.node) as proxy:
        await proxy.put(service(protocol="UDP"), slice_of("web", POD_B, protocol="UDP"))
        talker = udp(net, POD_A, VIP)
        with contextlib.closing(talker):
            await asyncio.to_thread(net.on_node, "iptables -t nat -F")
            assert await asyncio.to_thread(talker.ask) == ""
            await until(lambda: proxy.loop.status()["repairs"] == 1 and not proxy.proxier.pending)
            await asyncio.sleep(0.1)
            assert await asyncio.to_thread(talker.ask) == POD_B


async def test_a_udp_flow_moves_to_another_port_of_the_same_pod(net: World) -> None:
    net.serve(POD_B, name="second", port=9090)
    async with running(net.node) as proxy:
        await proxy.put(service(protocol="UDP"), slice_of("web", POD_B, protocol="UDP"))
        talker = udp(net, POD_A, VIP)
        with contextlib.closing(talker):
            assert await asyncio.to_thread(talker.ask) == POD_B
            await proxy.put(slice_of("web", POD_B, protocol="UDP", port=9090))
            assert await asyncio.to_thread(talker.ask) == "second"
        assert "deleted_entries_total" in proxy.metrics.text().decode()


async def test_a_node_going_is_told_to_load_balancers_and_not_to_supervisors(net: World) -> None:
    async with running(net.node, settings=Settings("node-1", "iptables", 0.0, 5.0)) as proxy:
        await until(lambda: proxy.loop.status()["syncs"] > 0)
        now = time.monotonic()
        assert proxy.health.healthz(now, 0.0).code == 200
        going = node_object()
        going["spec"] = {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}
        await proxy.put(going)
        answer = proxy.health.healthz(now, 0.0)
        assert (answer.code, answer.body["nodeEligible"]) == (503, False)
        assert proxy.health.livez(now, 0.0).code == 200
        assert json.dumps(answer.body)
