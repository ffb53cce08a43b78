"""Tries against real sockets, in a namespace that has nothing but `lo`."""

import asyncio
import socket
import threading
import time
import uuid
from collections.abc import Iterator

import dns.message
import pytest

from clusterip.kernel import links, netns
from clusterip.kernel.run import run
from clusterip.lab.check.probe import Prober
from clusterip.lab.check.values import Client, ClientKind, Outcome, Saw, Target
from clusterip.services.table import FrontendKind, Protocol

pytestmark = pytest.mark.kernel


@pytest.fixture
async def space() -> "Iterator[str]":  # type: ignore[misc]
    name = f"t{uuid.uuid4().hex[:8]}"
    netns.create(name)
    try:
        await run(("ip", "link", "set", "lo", "up"), netns=name)
        yield name
    finally:
        netns.delete(name)


def client(space: str) -> Client:
    return Client("node-1", ClientKind.NODE, space, "node-1")


def target(port: int, protocol: Protocol = "TCP", *, dns: bool = False, address: str = "127.0.0.1") -> Target:
    return Target("default", "web", "", protocol, address, port, dns=dns)


def listening(space: str, kind: int) -> socket.socket:
    with netns.inside(space):
        server = socket.socket(socket.AF_INET, kind)
    server.bind(("127.0.0.1", 0))
    server.settimeout(5)
    if kind == socket.SOCK_STREAM:
        server.listen(300)
    return server


def answering(server: socket.socket) -> threading.Thread:
    """A DNS server for one question over UDP."""

    def serve() -> None:
        question, peer = server.recvfrom(4096)
        server.sendto(dns.message.make_response(dns.message.from_wire(question)).to_wire(), peer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


async def attempt(space: str, to: Target, within: float = 0.3) -> Outcome:
    return await Prober(within)(client(space), to)


async def test_a_listener_inside_the_namespace_is_reached(space: str) -> None:
    with listening(space, socket.SOCK_STREAM) as server:
        outcome = await attempt(space, target(server.getsockname()[1]))
    assert outcome.saw is Saw.REACHED
    assert 0 < outcome.seconds < 0.3


async def test_a_closed_port_refuses_over_tcp_and_over_udp(space: str) -> None:
    assert (await attempt(space, target(9))).saw is Saw.REFUSED
    assert (await attempt(space, target(9, "UDP"))).saw is Saw.REFUSED


async def test_no_route_is_unreachable_with_the_systems_own_word(space: str) -> None:
    outcome = await attempt(space, target(80, address="10.96.0.7"))
    assert (outcome.saw, outcome.detail) == (Saw.UNREACHABLE, "Network is unreachable")


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize(
    ("tool", "own", "address"),
    [("iptables", "192.168.50.11/32", "10.96.0.7"), ("ip6tables", "fd00:50::11/128", "fd00:96::7")],
)
async def test_a_refusal_by_the_clients_own_rules_is_told_at_once(
    space: str, protocol: Protocol, tool: str, own: str, address: str
) -> None:
    lines = (
        links.bridge("eth0", own.partition("/")[0]),
        links.up("eth0"),
        links.address("eth0", own),
        links.route(address, "eth0"),
    )
    await links.configure(space, *lines)
    await run((tool, "-I", "OUTPUT", "-d", address, "-j", "REJECT"), netns=space)
    assert (await attempt(space, target(80, protocol, address=address))).saw is Saw.REFUSED


async def test_a_udp_port_that_says_nothing_is_silent_not_failed(space: str) -> None:
    with listening(space, socket.SOCK_DGRAM) as server:
        assert (await attempt(space, target(server.getsockname()[1], "UDP"))).saw is Saw.SILENT


async def test_a_dns_port_is_asked_a_question(space: str) -> None:
    with listening(space, socket.SOCK_DGRAM) as server:
        thread = answering(server)
        outcome = await attempt(space, target(server.getsockname()[1], "UDP", dns=True))
        await asyncio.to_thread(thread.join)
    assert outcome.saw is Saw.REACHED
    assert outcome.detail == "answered NOERROR, 0 records"


async def test_a_datagram_that_the_clients_own_rules_drop_is_told_from_silence(space: str) -> None:
    await run(("iptables", "-I", "OUTPUT", "-j", "DROP"), netns=space)
    assert (await attempt(space, target(9, "UDP"))).saw is Saw.DROPPED
    assert (await attempt(space, target(9))).saw is Saw.TIMED_OUT


async def test_tries_that_time_out_wait_side_by_side(space: str) -> None:
    await run(("iptables", "-I", "INPUT", "-j", "DROP"), netns=space)
    prober, start = Prober(0.5), time.perf_counter()
    outcomes = await asyncio.gather(*(prober(client(space), target(port)) for port in range(1, 31)))
    assert {outcome.saw for outcome in outcomes} == {Saw.TIMED_OUT}
    assert time.perf_counter() - start < 30 * 0.5 / 2


async def test_a_client_that_is_gone_is_told_from_a_port_that_fails() -> None:
    outcome = await attempt("t-not-there", target(80))
    assert (outcome.saw, outcome.detail) == (Saw.CLIENT_GONE, "node-1 is gone")


@pytest.mark.parametrize("kind", [FrontendKind.EXTERNAL_IP, FrontendKind.LOAD_BALANCER])
async def test_this_machine_does_not_ask_addresses_that_it_has_no_route_to(space: str, kind: FrontendKind) -> None:
    target = Target("default", "web", "", "TCP", "203.0.113.7", 80, kind=kind)
    outcome = await Prober(timeout=1.0)(Client("host", ClientKind.HOST, space, "node-1"), target)
    assert outcome.saw is Saw.NOT_TRIED
