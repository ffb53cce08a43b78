"""eBPF mode in the proxy: two layers, one proxier."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dataplane.ebpf.entries import VIP, entry
from tests.dataplane.ebpf.pods import NODE_IP, Node, node

from clusterip.dataplane.ebpf.attach import Sockets
from clusterip.dataplane.ebpf.layer import SocketLayer
from clusterip.dataplane.ebpf.layout import Frontend, frontend_key
from clusterip.dataplane.ebpf.program import shipped
from clusterip.dataplane.nftables import Config
from clusterip.dataplane.nftables.apply import Rules
from clusterip.dataplane.node import FromCIDR
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel import netns
from clusterip.kernel.run import run
from clusterip.proxy import sockets
from clusterip.proxy.config import EBPF, ProxyConfig
from clusterip.proxy.proxier import Proxier
from clusterip.proxy.sockets import SocketProxier, serves_loopback
from clusterip.proxy.tables import TablePlane
from clusterip.services.tracker import Change


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as made:
        yield made


async def served() -> tuple[str, ...]:
    return (NODE_IP,)


@pytest.fixture
def rules(lab: Node) -> Iterator[Rules]:
    made = Rules("IPv4", netns=lab.namespace("node"))
    yield made
    made.close()


def proxier(lab: Node, rules: Rules, period: float = 30) -> SocketProxier:
    plane = TablePlane(Config("IPv4", NODE_IP, FromCIDR("10.244.0.0/16")), rules, served, lambda: (), 30)
    return SocketProxier(Proxier(plane), SocketLayer(lab.sockets, "IPv4", localhost_node_ports=True), served, period)


def states(both: SocketProxier) -> tuple[bool, bool]:
    return both.pending, both.full_next


@pytest.mark.kernel
async def test_both_layers_follow_the_service_table(lab: Node, rules: Rules) -> None:
    both = proxier(lab, rules)
    web = replace(entry(pods=("b1",)), node_port=30080)
    both.note({web.key: Change(None, web)})
    assert states(both) == (True, True)
    done = await both.sync()
    assert done.full
    assert set(done.changes) == {web.key}
    assert states(both) == (False, False)
    assert lab.ask(VIP, 80) == lab.ask("127.0.0.1", 30080, member="node") == "b1"
    moved = replace(web, cluster=entry(pods=("b2",)).cluster)
    both.note({web.key: Change(web, moved)})
    done = await both.sync()
    assert not done.full
    assert lab.ask(VIP, 80) == "b2"
    assert both.counts["frontends"] == 3
    assert await both.check(deep=True) == ()


@pytest.mark.kernel
async def test_what_the_sockets_leave_is_in_the_rules(lab: Node, rules: Rules) -> None:
    """A load balancer's address with source ranges: nobody's for sockets, dropped by the rules."""
    both = proxier(lab, rules)
    web = replace(entry(pods=("b1",)), load_balancer_ips=("192.0.2.200",), source_ranges=("10.244.1.0/24",))
    both.note({web.key: Change(None, web)})
    await both.sync()
    assert lab.ask("192.0.2.200", 80) == "b1"
    assert lab.sockets.maps["services"].get(frontend_key(Frontend("192.0.2.200", 80, "TCP"))) is None


@pytest.mark.kernel
async def test_a_local_policy_without_a_backend_here_is_silence_and_a_port_that_is_none_a_refusal(
    lab: Node, rules: Rules
) -> None:
    # A node has a route to anywhere; without one the kernel would not ask the rules.
    for line in (
        "link add up0 type veth peer name up1",
        "link set up1 up",
        "link set up0 up",
        "route add default dev up0",
    ):
        await run(["ip", *line.split()], netns=lab.namespace("node"))
    both = proxier(lab, rules)
    web = replace(entry(pods=("b1",)), internal_local=True, local=(), external_ips=("198.51.100.7",))
    both.note({web.key: Change(None, web)})
    await both.sync()
    with pytest.raises(TimeoutError):
        lab.ask(VIP, 80, patience=0.5)
    with pytest.raises(ConnectionRefusedError):
        lab.ask(VIP, 81)
    assert lab.ask("198.51.100.7", 80) == "b1"


@pytest.mark.kernel
async def test_sockets_that_fail_owe_their_changes_to_the_next_sync(lab: Node, rules: Rules) -> None:
    lab.sockets.close()
    lab.sockets = Sockets(lab.place, shipped().smaller(1), netns.cookie(lab.namespace("node")))
    both = proxier(lab, rules)
    await both.sync()
    one = entry(pods=("b1",))
    two = entry(pods=("b1", "b2"))
    both.note({two.key: Change(None, two)})
    with pytest.raises(ClusterIPError, match="map slots"):
        await both.sync()
    assert states(both) == (True, True)
    both.note({two.key: Change(two, one)})
    done = await both.sync()
    assert done.full
    assert done.changes == {one.key: Change(None, one)}
    assert lab.ask(VIP, 80) == "b1"


@pytest.mark.kernel
async def test_damage_to_the_maps_is_seen_within_the_sync_period_and_healed(lab: Node, rules: Rules) -> None:
    both = proxier(lab, rules, period=0.2)
    web = entry(pods=("b1",))
    both.note({web.key: Change(None, web)})
    await both.sync()
    assert await both.check() == ()
    lab.sockets.maps["services"].delete([frontend_key(Frontend(VIP, 80, "TCP"))])
    for _ in range(200):
        if found := await both.check():
            break
        await asyncio.sleep(0.05)
    assert "map services" in found[0]
    assert states(both) == (True, True)
    await both.sync()
    assert lab.ask(VIP, 80) == "b1"


@pytest.mark.kernel
async def test_maps_are_not_read_again_and_again(lab: Node, rules: Rules) -> None:
    """Programs and links are looked at each time all the same."""
    both = proxier(lab, rules, period=3600)
    await both.sync()
    assert await both.check() == ()
    lab.sockets.maps["services"].put({frontend_key(Frontend(VIP, 80, "TCP")): bytes(32)})
    assert await both.check() == ()
    (lab.place.directory / "links" / "connect4").unlink()
    assert "connect4" in (await both.check())[0]


@pytest.mark.kernel
async def test_a_machine_that_cannot_is_told_so_in_one_sentence(tmp_path: Path) -> None:
    config = ProxyConfig(ebpf=EBPF(cgroup=str(tmp_path), directory=str(tmp_path / "bpf")))
    with pytest.raises(Unavailable, match=r"eBPF mode: .* is no cgroup of version 2"):
        await sockets.open_sockets(config)
    assert not (tmp_path / "bpf").exists()


@pytest.mark.kernel
async def test_removal_is_no_error_where_there_is_nothing(lab: Node, tmp_path: Path) -> None:
    assert await sockets.remove(str(tmp_path / "nothing")) == ()
    lab.sockets.close()
    assert await sockets.remove(str(lab.place.directory)) == ()
    assert not lab.place.directory.exists()


def test_loopback_serves_node_ports_unless_other_addresses_are_named() -> None:
    assert serves_loopback(ProxyConfig(), "IPv4")
    assert serves_loopback(ProxyConfig(node_port_addresses=("primary",)), "IPv6")
    assert not serves_loopback(ProxyConfig(ebpf=EBPF(localhost_node_ports=False)), "IPv4")
    elsewhere = ProxyConfig(node_port_addresses=("192.168.50.0/24",))
    assert (serves_loopback(elsewhere, "IPv4"), serves_loopback(elsewhere, "IPv6")) == (False, True)
    assert serves_loopback(ProxyConfig(node_port_addresses=("127.0.0.0/8",)), "IPv4")
