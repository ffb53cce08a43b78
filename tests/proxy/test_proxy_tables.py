"""nftables mode: what clients see, through a table that the loop wrote."""

import asyncio
import contextlib
import socket
import struct
from dataclasses import replace

import pytest
from tests.proxy.running import TABLES, running_tables, service, slice_of
from tests.proxy.test_proxy_packets import (
    BALANCER,
    EXTERNAL,
    MATRIX,
    NODE_PORT,
    VIP,
    VIP6,
    all_kinds,
    ask,
    refusal,
)
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

from clusterip.dataplane.node import FromCIDR, FromInterface
from clusterip.kernel import netns as namespaces
from clusterip.model.status import Object

pytestmark = pytest.mark.kernel

TABLES6 = replace(
    TABLES, family="IPv6", node_ip="fd00:50::11", detector=FromCIDR("fd00:1::/32"), service_cidrs=("fd00:96::/112",)
)


@pytest.fixture(autouse=True)
def clean(net: World) -> None:
    """Each test starts without rules and flows."""
    net.on_node("nft flush ruleset")
    with contextlib.suppress(Exception):
        net.on_node("conntrack -F")


def local(obj: Object) -> Object:
    obj["spec"]["externalTrafficPolicy"] = "Local"
    return obj


@pytest.mark.parametrize("detector", [FromCIDR("10.244.0.0/16"), FromInterface("cip0"), FromInterface("cip+")])
async def test_source_addresses_are_kept_or_hidden_by_the_matrix(
    net: World, detector: FromCIDR | FromInterface
) -> None:
    async with running_tables(net.node, config=replace(TABLES, detector=detector)) as proxy:
        for client, to_cluster_ip, under_cluster, under_local in MATRIX:
            await proxy.put(all_kinds(), slice_of("web", POD_B))
            targets = ((EXTERNAL, 80), (BALANCER, 80), (NODE, NODE_PORT))
            assert await ask(net, client, VIP) == (POD_B, to_cluster_ip)
            for address, port in targets:
                assert await ask(net, client, address, port) == (POD_B, under_cluster), (client, address)
            await proxy.put(local(all_kinds()))
            for address, port in targets:
                assert await ask(net, client, address, port) == (POD_B, under_local), (client, address, "Local")


@pytest.mark.parametrize("bit", [0, 31])
async def test_the_mark_may_be_any_bit(net: World, bit: int) -> None:
    async with running_tables(net.node, config=replace(TABLES, masquerade_bit=bit)) as proxy:
        await proxy.put(all_kinds(), slice_of("web", POD_B))
        assert await ask(net, OUTSIDE, VIP) == (POD_B, GATEWAY)
        assert await ask(net, POD_A, VIP) == (POD_B, POD_A)


async def test_ipv6_is_served_alike(net: World) -> None:
    async with running_tables(net.node, config=TABLES6, served=("fd00:50::11",)) as proxy:
        await proxy.put(service(address=VIP6), slice_of("web", POD_B6))
        assert await ask(net, POD_A, VIP6) == (POD_B, POD_A6)
        assert await ask(net, NODE, VIP6) == (POD_B, GATEWAY6)
        assert (await ask(net, OUTSIDE, VIP6))[1] != OUTSIDE6
        await proxy.put(slice_of("web", POD_A6))
        assert (await ask(net, POD_A, VIP6))[1] == GATEWAY6, "the hairpin"
        gone = slice_of("web", POD_A6)
        gone["endpoints"] = []
        await proxy.put(gone)
        for client in (POD_A, NODE):  # the second SYN is refused: see the iptables test
            assert refusal(net, client, VIP6, 80) < 2.5
            assert refusal(net, client, VIP6, 81) < 2.5
        with pytest.raises(TimeoutError):
            await ask(net, POD_A, "fd00:96::77", within=0.4)


@pytest.mark.parametrize("client", [POD_A, NODE, OUTSIDE])
async def test_no_backend_and_no_such_port_are_a_refusal_at_once(net: World, client: str) -> None:
    async with running_tables(net.node) as proxy:
        await proxy.put(all_kinds(), slice_of("web"))
        for address, port in ((VIP, 80), (VIP, 81), (NODE, NODE_PORT), (EXTERNAL, 80), (BALANCER, 80)):
            fastest = min(refusal(net, client, address, port) for _ in range(5))
            assert fastest < 0.005, (address, fastest)
        await proxy.put(slice_of("web", POD_B))
        assert (await ask(net, client, VIP))[0] == POD_B
        assert min(refusal(net, client, VIP, 81) for _ in range(5)) < 0.005


async def test_an_affine_client_stays_whatever_address_it_uses_and_moves_after_its_timeout(net: World) -> None:
    affine = all_kinds(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}})
    async with running_tables(net.node) as proxy:
        await proxy.put(affine, slice_of("web", POD_A, POD_B, FAR))
        first = {(await ask(net, OUTSIDE, VIP))[0] for _ in range(15)}
        first |= {(await ask(net, OUTSIDE, NODE, NODE_PORT))[0] for _ in range(15)}
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


@pytest.mark.parametrize("served", [(NODE, "127.0.0.1"), None])
async def test_node_ports_answer_on_served_addresses_and_never_on_loopback(
    net: World, served: tuple[str, ...] | None
) -> None:
    async with running_tables(net.node, served=served) as proxy:
        await proxy.put(all_kinds(), slice_of("web", POD_B))
        assert (await ask(net, NODE, NODE, NODE_PORT))[0] == POD_B
        with pytest.raises(ConnectionRefusedError):
            await ask(net, NODE, "127.0.0.1", NODE_PORT)
        if served is None:
            assert (await ask(net, POD_A, GATEWAY, NODE_PORT))[0] == POD_B
        else:
            with pytest.raises(ConnectionRefusedError):
                await ask(net, POD_A, GATEWAY, NODE_PORT)


@pytest.mark.parametrize("drops", [True, False])
async def test_what_connection_tracking_cannot_place_reaches_no_client_with_a_backends_address(
    net: World, drops: bool
) -> None:
    """An answer to a SYN that nobody has sent."""
    async with running_tables(net.node, config=replace(TABLES, drop_invalid=drops)) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        with (
            socket_in(net, net.pods[POD_B], socket.IPPROTO_TCP) as backend,
            socket_in(net, net.pods[OUTSIDE], socket.IPPROTO_TCP) as client,
        ):
            client.settimeout(0.5)
            backend.sendto(tcp(POD_B, OUTSIDE, flags=0x12), (OUTSIDE, 0))
            if drops:
                with pytest.raises(TimeoutError):
                    await asyncio.to_thread(client.recv, 2000)
            else:
                assert await asyncio.to_thread(client.recv, 2000)


def tcp(source: str, destination: str, flags: int) -> bytes:
    """A segment without data, from port 8080 to 40000."""
    header = struct.pack("!HHIIBBHHH", 8080, 40000, 1, 1, 5 << 4, flags, 1000, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack("!HH", 6, len(header))
    total = sum(struct.unpack(f"!{(len(pseudo) + len(header)) // 2}H", pseudo + header))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return header[:16] + struct.pack("!H", checksum) + header[18:]


async def test_a_connection_outlives_the_changes_around_it(net: World) -> None:
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        with net.socket(OUTSIDE) as connection:
            connection.connect((VIP, 80))
            await proxy.put(slice_of("web", POD_A, FAR))
            assert connection.getpeername()[0] == VIP
            assert (await asyncio.to_thread(connection.recv, 100)).split()[0] == POD_B.encode()


def socket_in(net: World, netns: str, protocol: int) -> socket.socket:
    with namespaces.inside(netns):
        made = socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol)
    made.settimeout(3)
    return made
