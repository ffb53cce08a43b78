"""IPVS mode by what clients see: real virtual servers, sets and chains, and real packets through them."""

import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.guest.world import CONFIG, NODE, ONE, OUTSIDE, PODS, TWO, VIP, World, world

from clusterip.dataplane.ipvs import At, Book, Config, Present, RealServer, compile_entry, delta
from clusterip.dataplane.ipvs.apply import check, clean_up, remove_device
from clusterip.dataplane.ipvs.delta import Rules as Text
from clusterip.errors import Unavailable
from clusterip.kernel import ipset, iptables, ipvs
from clusterip.kernel import netns as namespaces
from clusterip.kernel.ipvs import IPVS, IPVSRefused, Place, Service
from clusterip.kernel.run import run
from clusterip.services.table import Backend, Entry, PortName

pytestmark = pytest.mark.kernel
WEB = Entry(PortName("shop", "web", ""), "IPv4", "TCP", 80, VIP, cluster=(ONE, TWO), has_backends=True, node_port=30080)
DNS = replace(WEB, name=PortName("shop", "web", "dns"), protocol="UDP", node_port=0)
OTHER = "10.96.0.21"
AT, REAL_ONE = At("TCP", VIP, 80), RealServer(ONE.address, ONE.port)


@pytest.fixture
async def node() -> AsyncIterator[World]:
    async with world() as found:
        yield found


async def test_round_robin_shares_alike_and_keeps_a_pods_address(node: World) -> None:
    await node.load(WEB)
    assert Counter(node.who("client") for _ in range(6)) == {("one", PODS["client"]): 3, ("two", PODS["client"]): 3}


async def test_udp_is_answered_from_where_it_was_asked(node: World) -> None:
    await node.load(DNS)
    assert Counter(node.ask("client") for _ in range(4)) == {"one": 2, "two": 2}


async def test_a_udp_flow_moves_at_once_when_its_backend_goes(node: World) -> None:
    await node.load(DNS)
    with namespaces.inside(node.netns("client")):
        flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with flow:
        flow.settimeout(3)
        flow.connect((VIP, 80))
        flow.send(b"?")
        name = flow.recv(200).decode().split()[0]
        staying, other = (TWO, "two") if name == "one" else (ONE, "one")
        await node.change(DNS, replace(DNS, cluster=(staying,)))
        flow.send(b"?")
        assert flow.recv(200).decode().split()[0] == other


async def test_every_scheduler_serves(node: World) -> None:
    for scheduler in ("rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf"):
        await node.load(WEB, config=replace(CONFIG, scheduler=scheduler))
        assert node.who("client")[0] in ("one", "two"), scheduler


async def test_affinity_keeps_a_client_at_its_backend(node: World) -> None:
    await node.load(replace(WEB, affinity_seconds=100))
    assert len({node.who("client")[0] for _ in range(6)}) == 1
    with IPVS(node.netns("node")) as link:
        assert {s.persistent for s in link.services("IPv4")} == {100}


async def test_answers_to_one_client_port_are_taken_for_those_of_its_later_connection(node: World) -> None:
    """A limit of IPVS, told in docs/dataplanes/ipvs.md, that other modes do not have; the matrix tries again."""
    other = replace(WEB, name=PortName("shop", "other", ""), cluster_ip=OTHER, cluster=(ONE,), node_port=0)
    await node.load(replace(WEB, cluster=(ONE,)), other)
    first, _, _ = node.dial("client")
    later, name, _ = node.dial("client", OTHER, port_from=first.getsockname()[1])
    with first, later:
        assert name == "one"
        first.sendall(b"lost")
        with pytest.raises(TimeoutError):
            first.recv(10)
        later.sendall(b"found")
        assert later.recv(10) == b"found"


async def test_a_backend_that_leaves_keeps_its_connections_and_gets_no_new_ones(node: World) -> None:
    await node.load(WEB)
    connection, name, _ = node.dial("client")
    leaving, staying = (ONE, TWO) if name == "one" else (TWO, ONE)
    await node.change(WEB, replace(WEB, cluster=(staying,)))
    connection.sendall(b"still")
    assert connection.recv(10) == b"still"
    assert {node.who("client")[0] for _ in range(4)} == {"two" if name == "one" else "one"}
    busy = (AT, RealServer(leaving.address, leaving.port))
    assert busy not in await node.rules.idle(node.book.retired)
    connection.sendall(b"again")
    assert connection.recv(10) == b"again"
    connection.close()


async def test_a_backend_without_connections_is_deleted_by_the_sweep(node: World) -> None:
    await node.load(WEB)
    await node.change(WEB, replace(WEB, cluster=(TWO,)))
    idle = await node.rules.idle(node.book.retired)
    assert (AT, REAL_ONE) in idle
    await node.rules.apply(delta.sweep(idle))
    seen = await node.rules.observe(CONFIG)
    assert seen.servers[AT].weights == {RealServer(TWO.address, TWO.port): 1}


async def test_a_leaving_backends_affinity_ends_with_it(node: World) -> None:
    sticky = replace(WEB, affinity_seconds=100)
    await node.load(sticky)
    name, _ = node.who("client")
    await node.change(sticky, replace(sticky, cluster=(TWO,) if name == "one" else (ONE,)))
    assert {node.who("client")[0] for _ in range(3)} == {"two" if name == "one" else "one"}


async def test_what_else_listens_on_the_node_is_refused_at_a_cluster_ip(node: World) -> None:
    await node.load(WEB)
    assert node.who("client", "10.244.1.1", 2222)[0] == "node"
    with pytest.raises(ConnectionRefusedError):
        node.who("client", VIP, 2222)


async def test_a_service_without_endpoints_refuses_at_once(node: World) -> None:
    await node.load(replace(WEB, cluster=(), has_backends=False), replace(DNS, cluster=(), has_backends=False))
    with pytest.raises(ConnectionRefusedError):
        node.who("client")
    with pytest.raises(ConnectionRefusedError):
        node.ask("client")


async def test_a_pod_reaches_itself_through_its_service(node: World) -> None:
    await node.load(replace(WEB, cluster=(ONE,)))
    assert node.who("one") == ("one", "10.244.1.1")


async def test_the_node_reaches_a_service_with_an_address_that_a_pod_can_answer(node: World) -> None:
    await node.load(WEB)
    assert node.who("node") in {("one", "10.244.1.1"), ("two", "10.244.1.1")}


async def test_a_node_port_hides_the_client_and_a_local_policy_shows_it(node: World) -> None:
    await node.load(WEB)
    assert node.who("outside", NODE, 30080)[1] == "10.244.1.1"
    local = replace(WEB, external_local=True, local=(ONE, TWO))
    await node.change(WEB, local)
    assert node.who("outside", NODE, 30080)[1] == OUTSIDE


async def test_source_ranges_admit_and_drop(node: World) -> None:
    balanced = replace(WEB, load_balancer_ips=("192.0.2.200",), source_ranges=("203.0.113.0/24",))
    await node.load(balanced)
    assert node.who("outside", "192.0.2.200")[0] in ("one", "two")
    await node.change(balanced, replace(balanced, source_ranges=("198.18.0.0/15",)))
    with pytest.raises(TimeoutError):
        node.who("outside", "192.0.2.200")
    with pytest.raises(TimeoutError):
        node.who("node", "192.0.2.200")


EVERYTHING = replace(
    WEB,
    external_ips=("198.51.100.7",),
    load_balancer_ips=("192.0.2.200",),
    source_ranges=("0.0.0.0/0", "198.18.0.0/15", "203.0.113.7/32"),
    affinity_seconds=10800,
    health_check_node_port=32000,
)
SIX = Entry(
    PortName("shop", "six", ""),
    "IPv6",
    "TCP",
    80,
    "fd00:96::a",
    node_port=30080,
    external_ips=("2001:db8:7::7",),
    external_local=True,
    affinity_seconds=60,
    cluster=(Backend("fd00:1:1::2", 80, True),),
    local=(Backend("fd00:1:1::2", 80, True),),
    has_backends=True,
)


async def test_what_is_read_back_is_what_was_loaded(node: World) -> None:
    sctp = replace(WEB, name=PortName("shop", "web", "s"), protocol="SCTP", external_local=True, local=(ONE,))
    barred = replace(DNS, node_port=30081, load_balancer_ips=("192.0.2.201",), source_ranges=("198.18.0.0/15",))
    entries = (EVERYTHING, sctp, barred)
    await node.load(*entries)
    again = delta.load(node.book, await node.rules.observe(CONFIG), CONFIG)
    assert [type(step) for step in again.steps] == [Text]
    saved = await iptables.save(node.rules.programs)
    written = [line for step in again.steps if isinstance(step, Text) for line in step.text.splitlines()]
    assert [line for line in written if line.startswith("-A") and line not in saved.splitlines()] == []
    assert not [line for line in written if line.startswith("-I")]


async def test_ipv6_is_read_back_too(node: World) -> None:
    config = Config(family="IPv6", node_addresses=("fd00:50::11",))
    rules = type(node.rules)(await iptables.detect("IPv6", "nft", node.netns("node")))
    book = Book.of([compile_entry(SIX, config)])
    await rules.apply(delta.load(book, await rules.observe(config), config))
    again = delta.load(book, await rules.observe(config), config)
    assert [type(step) for step in again.steps] == [Text]
    assert await clean_up(rules, config)
    assert not await clean_up(rules, config)


async def test_each_client_is_sticky_by_itself_and_not_with_its_network(node: World) -> None:
    """ipvsadm names the mask (-M) of a virtual server only where it is not a whole address."""
    await node.load(replace(WEB, affinity_seconds=100))
    config = Config(family="IPv6", node_addresses=("fd00:50::11",))
    rules = type(node.rules)(await iptables.detect("IPv6", "nft", node.netns("node")))
    await rules.apply(delta.load(Book.of([compile_entry(SIX, config)]), await rules.observe(config), config))
    said = await run(("ipvsadm", "-S", "-n"), netns=node.netns("node"))
    persistent = [line for line in said.stdout.decode().splitlines() if " -p " in line]
    assert {line.split("-p ")[1] for line in persistent if "[" in line} == {"60"}
    assert {line.split("-p ")[1] for line in persistent if "[" not in line} == {"100"}


async def test_a_start_leaves_virtual_servers_in_excluded_ranges(node: World) -> None:
    others, gone = Place("TCP", "203.0.113.9", 8443), Place("TCP", "198.51.100.9", 8443)
    with IPVS(node.netns("node")) as link:
        link.apply([ipvs.add_service(Service(place, "rr", 0)) for place in (others, gone)])
    await node.load(WEB, config=replace(CONFIG, exclude_cidrs=("203.0.113.0/28",)))
    seen = (await node.rules.observe(CONFIG)).servers
    assert (At(*others) in seen, At(*gone) in seen) == (True, False)


async def test_a_clean_up_takes_ours_and_leaves_others(node: World) -> None:
    await node.load(EVERYTHING, DNS)
    netns = node.netns("node")
    others = Place("TCP", "203.0.113.9", 8443)
    with IPVS(netns) as link:
        link.apply([ipvs.add_service(Service(others, "rr", 0))])
    assert await clean_up(node.rules, CONFIG)
    assert await remove_device(netns)
    seen = await node.rules.observe(CONFIG)
    assert seen.servers == {At(*others): Present(At(*others), "rr")}
    assert (seen.sets, seen.chains, seen.jumps, seen.device) == (frozenset(), frozenset(), frozenset(), False)
    assert "KUBE-" not in await iptables.save(node.rules.programs)


async def test_the_start_check_names_a_scheduler_that_is_missing_and_the_mode_to_use(node: World) -> None:
    netns = node.netns("node")
    await check("rr", netns)
    with pytest.raises(Unavailable) as told:
        await check("nosuch", netns)
    assert "no scheduler 'nosuch'" in told.value.message
    assert "--proxy-mode nftables" in told.value.hint
    with IPVS(netns) as link:
        assert link.services("IPv4") == []


async def test_what_the_kernel_refuses_is_named(node: World) -> None:
    with IPVS(node.netns("node")) as link, pytest.raises(IPVSRefused, match="delete virtual server TCP"):
        link.apply([ipvs.delete_service(Place(*AT))])
    with pytest.raises(ipset.SetRefused, match="'add NOSUCH 10"):
        await ipset.restore("create X hash:ip\nadd NOSUCH 10.0.0.1\n", node.netns("node"))


async def test_timeouts_that_are_not_given_stay(node: World) -> None:
    with IPVS(node.netns("node")) as link:
        link.set_timeouts(0, 0, 0)
        link.set_timeouts(900, 60, 0)
