"""The layer as the proxy uses it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dataplane.ebpf.entries import VIP, VIP6, entry
from tests.dataplane.ebpf.pods import NODE_IP, Node, node

from clusterip.dataplane.ebpf.attach import Sockets
from clusterip.dataplane.ebpf.layer import SocketLayer
from clusterip.dataplane.ebpf.program import shipped
from clusterip.errors import ClusterIPError
from clusterip.kernel import netns
from clusterip.services.tracker import Change

pytestmark = pytest.mark.kernel


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as made:
        yield made


def layer(lab: Node) -> SocketLayer:
    return SocketLayer(lab.sockets, "IPv4", localhost_node_ports=False)


async def test_services_come_change_and_go(lab: Node) -> None:
    four = layer(lab)
    web = replace(entry(pods=("b1",)), node_port=30080)
    assert await four.load([web], [NODE_IP]) > 0
    assert four.size == 2
    assert lab.ask(NODE_IP, 30080) == "b1"
    moved = replace(web, cluster=entry(pods=("b2",)).cluster)
    await four.change({web.key: Change(web, moved)})
    assert lab.ask(VIP, 80) == lab.ask(NODE_IP, 30080) == "b2"
    await four.change({web.key: Change(moved, None)})
    assert four.size == 0
    assert await four.check(deep=True) == ()


async def test_families_share_the_maps_and_leave_each_other_alone(lab: Node) -> None:
    four, six = layer(lab), SocketLayer(lab.sockets, "IPv6", localhost_node_ports=False)
    await four.load([entry(pods=("b1",))], [])
    await six.load([entry(family="IPv6", pods=("b2",))], [])
    await four.load([entry(pods=("b1",))], [])
    assert (lab.ask(VIP, 80), lab.ask(VIP6, 80)) == ("b1", "b2")
    assert await four.check(deep=True) == await six.check(deep=True) == ()


async def test_a_map_that_is_full_is_told_and_what_fits_later_is_served(lab: Node) -> None:
    lab.sockets.close()
    lab.sockets = Sockets(lab.place, shipped().smaller(4), netns.cookie(lab.namespace("node")))
    four = layer(lab)
    many = [replace(entry(pods=("b1",)), cluster_ip=f"10.96.1.{n}", port=n) for n in range(1, 7)]
    named = [replace(e, name=e.name._replace(service=f"s{e.port}")) for e in many]
    with pytest.raises(ClusterIPError, match="map slots: write 6 entries"):
        await four.load(named, [])
    await four.load(named[:4], [])
    assert lab.ask("10.96.1.1", 1) == "b1"
