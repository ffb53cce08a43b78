"""What clients see: real connections from pods, the node and outside, through rules the loop wrote."""

import asyncio
import contextlib
import errno
import json
import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.proxy.running import CONFIG, node_object, running, service, slice_of
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
)
from tests.waiting import until

from clusterip.dataplane.iptables import Config, FromCIDR
from clusterip.kernel import nfacct
from clusterip.kernel.iptables import VariantName
from clusterip.model.status import Object
from clusterip.proxy import prepare
from clusterip.proxy.metrics import INVALID_DROPPED, LOCALHOST_ACCEPTED
from clusterip.proxy.parts import Settings

pytestmark = pytest.mark.kernel

VIP, EXTERNAL, BALANCER, NODE_PORT = "10.96.0.10", "198.51.100.7", "198.51.100.8", 30080


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
