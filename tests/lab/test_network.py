"""The cluster's network, for real: who reaches whom, and what the machine's own namespace sees of it."""

import asyncio
import errno
import json
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from clusterip.kernel import links, netns
from clusterip.kernel.run import run
from clusterip.lab import network
from clusterip.lab.check.probe import IPV6_RECVERR
from clusterip.lab.plan import Plan, checked, host_link

pytestmark = pytest.mark.kernel


async def own_network() -> tuple[object, ...]:
    """Links and routes of the namespace we are in."""
    shown = [
        await run(["ip", "-json", *what.split()]) for what in ("link show", "-4 route show table all", "rule show")
    ]
    found, *rest = (json.loads(s.stdout) for s in shown)
    return ([link["ifname"] for link in found], *rest)


@pytest.fixture
async def plan() -> AsyncIterator[Plan]:
    made = checked(Plan(name=f"n{uuid.uuid4().hex[:6]}", nodes=2))
    before = await own_network()
    await network.build(made)
    yield made
    network.remove(made.name)
    assert network.left(made.name) == ()
    assert await own_network() == before


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextmanager
def listening(namespace: str, address: str) -> Iterator[None]:
    with netns.inside(namespace):
        server = socket.create_server((address, 8080), family=family(address))
    with server:
        yield


def connect(namespace: str, address: str) -> int:
    """errno; 0: connected."""
    with netns.inside(namespace):
        client = socket.socket(family(address))
    with client:
        client.settimeout(3)
        if ":" in address:
            client.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        return client.connect_ex((address, 8080))


async def test_nodes_and_control_plane_reach_each_other(plan: Plan) -> None:
    ways = ("node-2", plan.node_ips("node-2")), ("control-plane", plan.control_plane_ips)
    for server, address in ((server, address) for server, addresses in ways for address in addresses):
        with listening(plan.netns(server), address):
            assert connect(plan.netns("node-1"), address) == 0


@pytest.mark.parametrize("pod", ["10.244.2.9", "fd00:1:2::9"])
async def test_a_pods_address_on_another_node_is_reached_through_that_node(plan: Plan, pod: str) -> None:
    alone = f"{pod}/{128 if ':' in pod else 32}"
    await links.configure(plan.netns("node-2"), links.address("lo", alone))  # stands for a pod
    with listening(plan.netns("node-2"), pod):
        for member in ("node-1", "control-plane"):
            assert connect(plan.netns(member), pod) == 0


@pytest.mark.parametrize("outside", ["203.0.113.1", "2001:db8::1"])
async def test_the_way_out_ends_with_an_error_at_once(plan: Plan, outside: str) -> None:
    start = time.monotonic()
    assert connect(plan.netns("node-1"), outside) in (errno.ENETUNREACH, errno.EHOSTUNREACH)
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(("service", "router"), [("10.96.0.10", b"192.168.50.1"), ("fd00:96::a", b"fd00:50::1")])
async def test_a_service_address_has_a_route_before_any_rule_is_there(plan: Plan, service: str, router: bytes) -> None:
    shown = await run(["ip", "route", "get", service], netns=plan.netns("node-1"))
    assert b"via %b " % router in shown.stdout


@pytest.mark.parametrize(("ip_family", "absent"), [("ipv4", "IPv6"), ("ipv6", "IPv4")])
async def test_a_family_that_is_not_wanted_has_no_addresses(ip_family: str, absent: str) -> None:
    plan = checked(Plan(name=f"f{uuid.uuid4().hex[:6]}", nodes=1, ip_family=ip_family))
    await network.build(plan)
    try:
        shown = await run(["ip", "-json", "address", "show", "eth0", "scope", "global"], netns=plan.netns("node-1"))
        found = [entry["local"] for link in json.loads(shown.stdout) for entry in link.get("addr_info", ()) if entry]
        assert found == [*plan.node_ips("node-1")]
        assert absent not in plan.families
    finally:
        network.remove(plan.name)


IN_A_NAMESPACE = """
import asyncio, json, sys
from clusterip.lab import network
from clusterip.lab.plan import Plan
from clusterip.kernel.run import run

async def main():
    async def routes():
        shown = [await run(["ip", "-json", family, "route"]) for family in ("-4", "-6")]
        found = [r["dst"] for s in shown for r in json.loads(s.stdout or b"[]")]
        return [to for to in found if not to.startswith(("fd00:51::", "fe80::"))]  # the link's own

    plan = Plan(name=sys.argv[1], nodes=1, host_access=True)
    await network.build(plan)
    links = json.loads((await run(["ip", "-json", "link"])).stdout)
    during = await routes()
    try:
        await network.build(Plan(name=sys.argv[1] + "b", nodes=1, host_access=True))
        second = "built"
    except Exception as error:
        second = str(error)
    removed = await network.remove_host_link(plan.name)
    network.remove(plan.name)
    print(json.dumps([[l["ifname"] for l in links], during, second, removed, await routes()]))

asyncio.run(main())
"""


async def test_host_access_is_one_link_and_a_route_a_family_and_goes_away() -> None:
    name = f"h{uuid.uuid4().hex[:6]}"
    netns.create(name)  # plays the host
    try:
        done = await run([sys.executable, "-c", IN_A_NAMESPACE, name], netns=name)
        names, routes, second, removed, after = json.loads(done.stdout)
    finally:
        netns.delete(name)
    assert names == ["lo", host_link(name)]
    assert routes == ["10.96.0.0/16", "fd00:96::/112"]
    assert "has a route to 10.96.0.0/16 already" in second
    assert removed == host_link(name)
    assert after == []
    assert network.left(f"{name}b") == (), "what is refused leaves nothing behind"


async def test_two_clusters_have_the_same_addresses_and_do_not_meet(plan: Plan) -> None:
    other = Plan(name=f"o{uuid.uuid4().hex[:6]}", nodes=2)
    await network.build(other)
    try:
        with listening(other.netns("node-2"), "192.168.50.12"):
            assert await asyncio.to_thread(connect, other.netns("node-1"), "192.168.50.12") == 0
            assert connect(plan.netns("node-1"), "192.168.50.12") == errno.ECONNREFUSED
    finally:
        network.remove(other.name)
