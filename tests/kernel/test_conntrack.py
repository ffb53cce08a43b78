"""Against the kernel's own table, in a namespace of its own; conntrack(8) is the second opinion."""

import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from clusterip.kernel import conntrack, nfacct, sysctl
from clusterip.kernel import netns as namespaces
from clusterip.kernel.conntrack import Tuple
from clusterip.kernel.netlink import attribute, attributes, nested
from clusterip.services.table import Family

pytestmark = pytest.mark.kernel


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"ct-{uuid.uuid4().hex[:8]}"
    namespaces.create(name)
    try:
        run(name, "ip", "link", "set", "lo", "up")
        # conntrack is off in a namespace until a rule asks for it
        run(name, "iptables", "-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW", "-j", "ACCEPT")
        run(name, "ip6tables", "-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW", "-j", "ACCEPT")
        yield name
    finally:
        namespaces.delete(name)


def run(netns: str, *argv: str) -> str:
    return subprocess.run(("ip", "netns", "exec", netns, *argv), check=True, capture_output=True, text=True).stdout


def flow(netns: str, destination: str, port: int, source_port: int) -> None:
    with namespaces.inside(netns):
        sender = socket.socket(socket.AF_INET6 if ":" in destination else socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.setblocking(False)
        sender.bind(("", source_port))
        sender.sendto(b"x", (destination, port))


def connection(netns: str, source_port: int) -> None:
    with namespaces.inside(netns):
        listener, client = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with listener, client:
        client.bind(("127.0.0.1", source_port))
        client.connect(listener.getsockname())


def test_a_flow_is_read_with_both_directions(netns: str) -> None:
    flow(netns, "127.0.0.1", 5300, 40001)
    [entry] = conntrack.dump("IPv4", "UDP", netns).entries
    assert entry.original == Tuple("127.0.0.1", 40001, "127.0.0.1", 5300)
    assert entry.reply == Tuple("127.0.0.1", 5300, "127.0.0.1", 40001)
    assert entry.protocol == 17
    assert 0 < entry.timeout <= 30
    assert entry.status & conntrack.DESTINATION_NAT == 0


def test_destination_nat_shows_in_the_reply_and_in_the_status(netns: str) -> None:
    run(netns, "iptables", "-t", "nat", "-A", "OUTPUT", "-d", "10.96.0.1", "-p", "udp",
        "-j", "DNAT", "--to-destination", "127.0.0.2:53")  # fmt: skip
    run(netns, "ip", "route", "add", "10.96.0.0/16", "dev", "lo")
    flow(netns, "10.96.0.1", 5353, 40002)
    [entry] = conntrack.dump("IPv4", "UDP", netns).entries
    assert entry.original[2:] == ("10.96.0.1", 5353)
    assert entry.reply[:2] == ("127.0.0.2", 53)
    assert entry.status & conntrack.DESTINATION_NAT


def test_only_the_asked_protocol_and_family_is_listed(netns: str) -> None:
    flow(netns, "127.0.0.1", 5300, 40003)
    connection(netns, 40004)
    flow(netns, "::1", 5300, 40005)
    assert [e.original.source_port for e in conntrack.dump("IPv4", "UDP", netns).entries] == [40003]
    [tcp] = conntrack.dump("IPv4", "TCP", netns).entries
    assert tcp.original.source_port == 40004
    assert tcp.tcp_state is not None
    assert [e.original.source for e in conntrack.dump("IPv6", "UDP", netns).entries] == ["::1"]
    assert len(conntrack.dump("IPv4", None, netns).entries) >= 2


@pytest.mark.parametrize(("family", "loopback"), [("IPv4", "127.0.0.1"), ("IPv6", "::1")])
def test_deleting_takes_the_named_flows_and_no_other(netns: str, family: Family, loopback: str) -> None:
    for port in range(40100, 40110):
        flow(netns, loopback, 5300, port)
    entries = conntrack.dump(family, "UDP", netns).entries
    assert len(entries) == 10
    gone = [e for e in entries if e.original.source_port < 40105]
    assert conntrack.delete(gone, netns) == 5
    assert conntrack.delete(gone, netns) == 0
    left = run(netns, "conntrack", "-L", "-p", "udp", "-f", family.lower())
    assert sorted(e.original.source_port for e in conntrack.dump(family, "UDP", netns).entries) == [
        *range(40105, 40110)
    ]
    assert "sport=40105" in left
    assert "sport=40104" not in left


def test_a_flow_that_came_in_the_place_of_a_dumped_one_survives(netns: str) -> None:
    flow(netns, "127.0.0.1", 5300, 40200)
    [entry] = conntrack.dump("IPv4", "UDP", netns).entries
    number = int.from_bytes(entry.key[-4:], "big")  # the kernel's id of the flow
    assert f"id={number}" in run(netns, "conntrack", "-L", "-o", "id")
    another = (number ^ 1).to_bytes(4, "big")
    assert conntrack.delete([replace(entry, key=entry.key[:-4] + another)], netns) == 0
    assert conntrack.delete([entry], netns) == 1


def test_a_counter_counts_what_a_rule_matched(netns: str) -> None:
    assert nfacct.read("seen", netns) is None
    assert nfacct.ensure("seen", netns)
    assert nfacct.ensure("seen", netns)
    run(netns, "iptables", "-I", "OUTPUT", "-p", "udp", "-m", "nfacct", "--nfacct-name", "seen")
    flow(netns, "127.0.0.1", 5300, 40300)
    assert nfacct.read("seen", netns) == nfacct.Counter(packets=1, bytes=29)


def test_a_setting_is_written_only_when_it_differs(netns: str) -> None:
    name = "net.ipv4.conf.all.route_localnet"
    assert sysctl.read(name, netns) == "0"
    assert sysctl.ensure(name, "1", netns)
    assert not sysctl.ensure(name, "1", netns)
    assert sysctl.read(name, netns) == "1"
    assert sysctl.read(name) == "0", "the machine's own namespace is untouched"


def test_a_setting_of_the_machine_is_refused_as_not_ours(netns: str) -> None:
    with pytest.raises(sysctl.SettingRefused, match="nf_conntrack_max") as caught:
        sysctl.ensure("net.netfilter.nf_conntrack_max", "1000001", netns)
    assert caught.value.not_ours
    assert sysctl.read("net.no.such", netns) is None


def test_a_value_the_kernel_does_not_take_is_ours_to_answer_for(netns: str) -> None:
    with pytest.raises(sysctl.SettingRefused, match="route_localnet: cannot be set to many") as caught:
        sysctl.ensure("net.ipv4.conf.all.route_localnet", "many", netns)
    assert not caught.value.not_ours


def test_ipv6_that_is_switched_off_does_not_count(netns: str) -> None:
    assert sysctl.has_ipv6(netns)
    sysctl.ensure("net.ipv6.conf.all.disable_ipv6", "1", netns)
    assert not sysctl.has_ipv6(netns)


def test_attributes_are_padded_and_a_torn_one_ends_the_walk() -> None:
    packed = attribute(1, b"abc") + nested(2, attribute(3, b"12345678"))
    assert len(packed) % 4 == 0
    found = attributes(packed)
    assert found[1] == b"abc"
    assert attributes(found[2]) == {3: b"12345678"}
    assert attributes(packed[:-4]) == {1: b"abc"}
    assert attributes(b"\x02\x00\x01\x00") == {}
