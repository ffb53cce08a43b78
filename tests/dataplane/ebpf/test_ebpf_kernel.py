"""Real sockets against the real program, in a cgroup and in namespaces of their own."""

import asyncio
import errno
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.dataplane.ebpf.entries import MAPPED, VIP, VIP6, backends, entry, everywhere
from tests.dataplane.ebpf.pods import NODE_IP, NODE_IP6, Node, four, node

from clusterip.kernel import cgroup
from clusterip.services.table import Protocol

pytestmark = pytest.mark.kernel

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
KINDS: dict[Protocol, int] = {"TCP": STREAM, "UDP": DATAGRAM}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("ebpf")) as made:
        yield made


ADDRESSES = pytest.mark.parametrize("address", [VIP, VIP6, MAPPED])


def peer(sock: socket.socket) -> tuple[str, int]:
    address, port, *_ = sock.getpeername()
    return address, port


def dial(lab: Node, address: str, kind: int = STREAM, member: str = "client") -> socket.socket:
    opened = lab.open(member, socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        opened.connect((address, 80))
    except OSError:
        opened.close()
        raise
    return opened


@ADDRESSES
async def test_a_stream_reaches_a_backend_and_its_peer_is_the_service(lab: Node, address: str) -> None:
    await lab.serve(*everywhere())
    with dial(lab, address) as asking:
        assert asking.recv(16) in (b"b1", b"b2")
        assert peer(asking) == (address, 80)


@ADDRESSES
async def test_a_datagrams_answer_comes_from_the_service(lab: Node, address: str) -> None:
    await lab.serve(*everywhere())
    with lab.open("client", socket.AF_INET6 if ":" in address else socket.AF_INET, DATAGRAM) as asking:
        asking.sendto(b"?", (address, 80))
        answer, sender = asking.recvfrom(16)
        assert answer in (b"b1", b"b2")
        assert sender[:2] == (address, 80)


@ADDRESSES
async def test_a_connected_datagram_socket_sees_the_service(lab: Node, address: str) -> None:
    await lab.serve(*everywhere())
    with dial(lab, address, DATAGRAM) as asking:
        asking.send(b"?")
        answer, sender = asking.recvfrom(16)
        assert answer in (b"b1", b"b2")
        assert sender[:2] == peer(asking) == (address, 80)


@pytest.mark.parametrize("protocol", KINDS)
@ADDRESSES
async def test_backends_get_equal_shares(lab: Node, address: str, protocol: Protocol) -> None:
    await lab.serve(*everywhere())
    found = Counter(lab.ask(address, 80, kind=KINDS[protocol]) for _ in range(400))
    # Beyond 6 standard deviations (10 each): less than once in 10^8 runs.
    assert found.keys() == {"b1", "b2"}
    assert abs(found["b1"] - 200) < 60


@ADDRESSES
@pytest.mark.parametrize("protocol", KINDS)
async def test_a_service_without_endpoints_refuses_at_once(lab: Node, address: str, protocol: Protocol) -> None:
    await lab.serve(*everywhere(()))
    started = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        dial(lab, address, KINDS[protocol]).close()
    assert time.monotonic() - started < 1
    if protocol == "UDP":
        with pytest.raises(ConnectionRefusedError):
            lab.ask(address, 80, kind=DATAGRAM)


async def test_a_connect_that_does_not_wait_is_refused_too(lab: Node) -> None:
    await lab.serve(entry(pods=()))
    with lab.open("client") as asking:
        asking.setblocking(False)
        assert asking.connect_ex((VIP, 80)) == errno.ECONNREFUSED


async def test_what_has_no_entry_is_left_alone(lab: Node) -> None:
    await lab.serve(*everywhere())
    assert lab.ask(four("b1"), 8080) == "b1"
    with lab.open("client") as asking:
        asking.settimeout(0.3)
        with pytest.raises(OSError, match=r"timed out|unreachable"):
            asking.connect((VIP, 81))


async def test_node_processes_are_served_and_loopback_is_theirs_alone(lab: Node) -> None:
    await lab.serve(*(replace(e, node_port=30080) for e in everywhere()))
    for address in (VIP, VIP6):
        assert lab.ask(address, 80, member="node") in ("b1", "b2")
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", NODE_IP, NODE_IP6):
        assert lab.ask(address, 30080, member="node") in ("b1", "b2")
    for address in (NODE_IP, NODE_IP6):
        assert lab.ask(address, 30080) in ("b1", "b2")
    for address in ("127.0.0.1", "::1"):
        with pytest.raises(ConnectionRefusedError):
            lab.ask(address, 30080)  # by the pod itself: nobody listens there


async def test_external_and_load_balancer_addresses_are_served(lab: Node) -> None:
    await lab.serve(replace(entry(), external_ips=("198.51.100.7",), load_balancer_ips=("192.0.2.200",)))
    for address in ("198.51.100.7", "192.0.2.200"):
        assert lab.ask(address, 80) in ("b1", "b2")


async def test_a_pod_reaches_itself(lab: Node) -> None:
    await lab.serve(entry(pods=("b1",)))
    assert lab.ask(VIP, 80, member="b1") == "b1"


@pytest.mark.parametrize("protocol", KINDS)
async def test_affinity_keeps_a_client_until_it_was_silent_for_the_timeout(lab: Node, protocol: Protocol) -> None:
    sticky = replace(entry(protocol), affinity_seconds=1, external_ips=("198.51.100.7",))
    await lab.serve(sticky)

    def ask(address: str = VIP, member: str = "client") -> str:
        return lab.ask(address, 80, kind=KINDS[protocol], member=member)

    await asyncio.sleep(1.1)
    first = ask()
    for _ in range(6):
        await asyncio.sleep(0.3)  # more than a second in all: each connection begins the second anew
        assert ask() == ask("198.51.100.7") == first
    seen = set()
    for _ in range(12):
        await asyncio.sleep(1.05)
        seen.add(ask())
        if len(seen) == 2:
            break
    assert seen == {"b1", "b2"}  # by chance alone once in 4000 runs


async def test_a_sticky_backend_that_went_is_replaced_at_once(lab: Node) -> None:
    sticky = replace(entry(), affinity_seconds=3600)
    await lab.serve(sticky)
    first = lab.ask(VIP, 80)
    other = "b2" if first == "b1" else "b1"
    without = replace(sticky, cluster=backends("IPv4", other))
    await lab.change(sticky, without)
    assert lab.ask(VIP, 80) == other
    await lab.change(without, sticky)
    assert {lab.ask(VIP, 80) for _ in range(20)} == {other}


async def test_a_datagram_socket_keeps_its_backend_and_moves_when_it_goes(lab: Node) -> None:
    await lab.serve(entry("UDP"))
    with lab.open("client", kind=DATAGRAM) as asking:

        def ask() -> bytes:
            asking.sendto(b"?", (VIP, 80))
            return asking.recv(16)

        first = ask()
        assert {ask() for _ in range(30)} == {first}
        other = "b2" if first == b"b1" else "b1"
        await lab.change(entry("UDP"), entry("UDP", pods=(other,)))
        assert ask() == other.encode()


async def test_a_datagram_socket_that_then_asks_for_the_backend_by_name_sees_its_name(lab: Node) -> None:
    await lab.serve(entry("UDP", pods=("b1",)))
    with dial(lab, VIP, DATAGRAM) as asking:
        assert peer(asking) == (VIP, 80)
        asking.connect((four("b1"), 8080))
        assert peer(asking) == (four("b1"), 8080)


async def test_switching_affinity_on_takes_effect(lab: Node) -> None:
    await lab.serve(entry())
    assert {lab.ask(VIP, 80) for _ in range(40)} == {"b1", "b2"}
    await lab.change(entry(), replace(entry(), affinity_seconds=3600))
    assert len({lab.ask(VIP, 80) for _ in range(20)}) == 1


async def test_a_process_outside_the_cgroup_is_not_touched(lab: Node) -> None:
    await lab.serve(entry())
    cgroup.add(lab.place.cgroup.parent, os.getpid())
    try:
        outside = lab.open("client")
    finally:
        cgroup.add(lab.place.cgroup, os.getpid())
    outside.settimeout(0.3)
    with outside, pytest.raises(OSError, match=r"timed out|unreachable"):
        outside.connect((VIP, 80))
