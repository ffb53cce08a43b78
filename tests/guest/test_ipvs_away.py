"""Away from IPVS while connections are on it: they go on, new ones are the new mode's, and none of those hangs on an
address that goes."""

import contextlib
from pathlib import Path

import pytest
from tests.guest.world import CONFIG, NODE, ONE, TWO, VIP, world

from clusterip.dataplane.nftables import Config
from clusterip.dataplane.nftables.apply import Rules
from clusterip.dataplane.node import FromCIDR
from clusterip.proxy.leftovers import Leftovers
from clusterip.proxy.tables import TablePlane
from clusterip.services.table import Entry, PortName

pytestmark = pytest.mark.kernel
WEB = Entry(PortName("shop", "web", ""), "IPv4", "TCP", 80, VIP, cluster=(ONE, TWO), has_backends=True, node_port=30080)
CLIENTS = (("client", VIP, 80), ("node", VIP, 80), ("outside", NODE, 30080))


async def served() -> tuple[str, ...]:
    return (NODE,)


async def test_connections_of_ipvs_go_on_and_new_ones_are_the_new_modes(tmp_path: Path) -> None:
    async with world() as node:
        await node.load(WEB)
        old = [node.dial(*client)[0] for client in CLIENTS]
        netns = node.netns("node")
        leftovers = Leftovers(str(tmp_path / "bpf"), {"IPv4": NODE}, netns)
        await leftovers.yield_to("nftables")
        config = Config(node_ip=NODE, detector=FromCIDR("10.244.0.0/16"))
        with contextlib.closing(Rules("IPv4", netns=netns)) as rules:
            plane = TablePlane(config, rules, served, lambda: (), 30)
            await plane.load({WEB.key: WEB})
            assert await plane.check(deep=True) == ()
        new = [node.dial(*client)[0] for client in CLIENTS]
        await leftovers.remove("nftables", (WEB,))
        (said,) = leftovers.left
        assert said == "IPVS (IPv4): 2 virtual servers whose connections go on"
        for connection in (*old, *new):
            connection.sendall(b"still")
            assert connection.recv(10) == b"still"
        assert [c.getsockname()[0] for c in (old[1], new[1])] == [VIP, NODE], "the node speaks with its own address now"
        seen = await node.rules.observe(CONFIG)
        assert {weight for server in seen.servers.values() for weight in server.weights.values()} == {0}
        for connection in (*old, *new):
            connection.close()
