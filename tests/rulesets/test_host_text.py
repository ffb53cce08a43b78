"""Interfaces, routes, rules and settings: as the real `ip` prints them, and as people paste them."""

import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from clusterip.kernel import netns as namespaces
from clusterip.rulesets import host
from clusterip.rulesets.host import HairpinMode, Interface, InterfaceAddress, NextHop, PolicyRule, Route

SETUP = """\
link set lo up
link add br0 type bridge
link set br0 up
link add v0 type veth peer name v1
link set v0 master br0
link set v0 up
link set v1 up
link set v0 type bridge_slave hairpin on
addr add 10.244.1.1/24 dev br0
addr add fd00::1/64 dev br0 nodad
addr add 192.0.2.1 peer 192.0.2.2/32 dev v1
route add 10.9.0.0/16 nexthop via 10.244.1.5 weight 2 nexthop via 10.244.1.6
route add blackhole 10.8.0.0/16
route add 10.7.0.0/16 via inet6 fd00::9 dev br0
route add default via 10.244.1.9 metric 100
rule add fwmark 0x200/0xf00 lookup 2004 pref 9
rule add not from 10.0.0.0/8 to 1.2.3.0/24 iif br0 unreachable pref 10
rule add from 10.1.0.0/16 lookup 100 suppress_prefixlength 0 pref 11
"""


@pytest.fixture(scope="module")
def netns() -> Iterator[str]:
    name = f"host-{uuid4().hex[:8]}"
    namespaces.create(name)
    for line in SETUP.splitlines():
        run(name, "ip", *line.split())
    yield name
    namespaces.delete(name)


def run(netns: str, *argv: str) -> str:
    done = subprocess.run(["ip", "netns", "exec", netns, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def interfaces(text: str) -> dict[str, Interface]:
    reading = host.read_interfaces(text)
    assert reading.problems == ()
    return {interface.name: interface for interface in reading.values.interfaces}


def addresses(interface: Interface) -> set[tuple[str, int]]:
    return {(a.address, a.length) for a in interface.addresses if not a.address.startswith("fe80")}


@pytest.mark.kernel
@pytest.mark.parametrize("command", ["ip addr", "ip -d addr", "ip -br addr", "ip -o addr"])
def test_addresses_are_read_in_each_form(netns: str, command: str) -> None:
    found = interfaces(run(netns, *command.split()))
    assert addresses(found["br0"]) == {("10.244.1.1", 24), ("fd00::1", 64)}
    assert addresses(found["v1"]) == {("192.0.2.1", 32)}
    assert addresses(found["lo"]) == {("127.0.0.1", 8), ("::1", 128)}


@pytest.mark.kernel
def test_links_say_what_they_are(netns: str) -> None:
    found = interfaces(run(netns, "ip", "-d", "link"))
    assert (found["v0"].kind, found["v0"].master, found["v0"].hairpin, found["v0"].peer) == ("veth", "br0", True, "v1")
    assert (found["br0"].kind, found["br0"].state, found["br0"].mtu) == ("bridge", "UP", 1500)
    assert "LOWER_UP" in found["v1"].flags
    brief = interfaces(run(netns, "ip", "-br", "link"))
    assert brief["v0"].flags == found["v0"].flags
    assert brief["v0"].hardware == found["v0"].hardware
    bridge = interfaces(run(netns, "bridge", "-d", "link"))
    assert (bridge["v0"].hairpin, bridge["v0"].master, bridge["v0"].state) == (True, "br0", "")


@pytest.mark.kernel
def test_what_two_commands_say_of_an_interface_is_put_together(netns: str) -> None:
    found = interfaces(run(netns, "ip", "addr") + run(netns, "ip", "-d", "link"))
    assert (found["v0"].hairpin, found["v0"].kind) == (True, "veth")
    assert addresses(found["br0"]) == {("10.244.1.1", 24), ("fd00::1", 64)}


@pytest.mark.kernel
def test_routes_are_read_in_full(netns: str) -> None:
    reading = host.read_routes(run(netns, "ip", "route"))
    assert reading.problems == ()
    by_destination = {route.destination: route for route in reading.values.routes}
    assert by_destination["default"].hops == (NextHop("10.244.1.9", "br0"),)
    assert by_destination["default"].metric == 100
    assert by_destination["10.8.0.0/16"].type == "blackhole"
    assert by_destination["10.8.0.0/16"].hops == ()
    assert by_destination["10.7.0.0/16"].hops == (NextHop("fd00::9", "br0"),)
    assert by_destination["10.9.0.0/16"].hops == (NextHop("10.244.1.5", "br0", 2), NextHop("10.244.1.6", "br0", 1))
    link = by_destination["10.244.1.0/24"]
    assert (link.source, link.scope, link.protocol) == ("10.244.1.1", "link", "kernel")
    assert by_destination["192.0.2.2/32"].hops == (NextHop("", "v1"),)
    everything = host.read_routes(run(netns, "ip", "route", "show", "table", "all"))
    assert everything.problems == ()
    assert {route.table for route in everything.values.routes} == {"main", "local"}


@pytest.mark.kernel
def test_rules_are_read_in_full(netns: str) -> None:
    reading = host.read_policy(run(netns, "ip", "rule"))
    assert reading.problems == ()
    by_priority = {rule.priority: rule for rule in reading.values.rules}
    assert by_priority[0] == PolicyRule(0, table="local", line=1)
    assert by_priority[9] == PolicyRule(9, mark=0x200, mask=0xF00, table="2004", line=2)
    assert by_priority[10] == PolicyRule(
        10, "10.0.0.0/8", "1.2.3.0/24", came_in="br0", negated=True, action="unreachable", line=3
    )
    assert by_priority[11].more == ("suppress_prefixlength", "0")


def test_what_is_known_of_kube_ipvs0_is_read() -> None:
    text = (
        "7: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default\n"
        "    inet 10.96.0.1/32 scope global kube-ipvs0\n"
    )
    found = interfaces(text)["kube-ipvs0"]
    assert found.addresses == (InterfaceAddress("10.96.0.1", 32, "global", line=2),)
    assert (found.state, found.flags) == ("DOWN", ("BROADCAST", "NOARP"))


def test_settings_have_one_name_whatever_the_form() -> None:
    text = (
        "net.ipv4.ip_forward = 1\n"
        "net/ipv4/conf/all/rp_filter=2\n"
        "/proc/sys/net/bridge/bridge-nf-call-iptables:0\n"
        "net.ipv4.conf.eth0/100.rp_filter = 1\n"
        "sysctl: permission denied on key 'fs.protected_fifos'\n"
        "net.ipv4.ip_local_port_range = 32768\t60999\n"
    )
    reading = host.read_settings(text)
    assert reading.problems == ()
    assert reading.values.values == {
        "net.ipv4.ip_forward": "1",
        "net.ipv4.conf.all.rp_filter": "2",
        "net.bridge.bridge-nf-call-iptables": "0",
        "net.ipv4.conf.eth0/100.rp_filter": "1",
        "net.ipv4.ip_local_port_range": "32768\t60999",
    }
    assert reading.values.number("net.ipv4.ip_local_port_range") == 32768
    assert reading.values.number("net.ipv4.tcp_syncookies") is None
    assert reading.values.lines["net.ipv4.conf.eth0/100.rp_filter"] == 4


def test_hairpin_modes_are_found_among_files_of_sys() -> None:
    text = (
        "/sys/devices/virtual/net/cbr0/brif/veth3f2a/hairpin_mode 0\n"
        "/sys/class/net/cbr0/brif/vethb01c/hairpin_mode:1\n"
        "/sys/class/net/veth9/brport/hairpin_mode: 1\n"
        "/sys/class/net/cbr0/mtu 1500\n"
    )
    assert list(host.hairpin_modes(host.read_settings(text).values)) == [
        HairpinMode("cbr0", "veth3f2a", False, 1),
        HairpinMode("cbr0", "vethb01c", True, 2),
        HairpinMode("", "veth9", True, 3),
    ]


@pytest.mark.kernel
def test_all_settings_of_this_machine_are_read() -> None:
    done = subprocess.run(["sysctl", "-a"], capture_output=True, text=True, check=False)
    reading = host.read_settings(done.stdout)
    assert reading.problems == ()
    assert reading.facts > 300
    assert "net.ipv4.ip_forward" in reading.values.values


def test_lines_that_are_none_of_it_are_named() -> None:
    assert [p.line for p in host.read_interfaces("nonsense\n1: lo: <UP> mtu 1\nmore\n").problems] == [1, 3]
    assert [p.line for p in host.read_routes("default via 10.0.0.1\nnonsense\n300.1.1.1 dev x\n").problems] == [2, 3]
    assert [p.line for p in host.read_policy("0: from all lookup local\nnonsense\n5: from\n").problems] == [2, 3]
    assert [p.line for p in host.read_settings("a.b = 1\nnonsense\n").problems] == [2]
    assert host.read_routes("unreachable 10.0.0.0/8\n").values.routes == (Route("10.0.0.0/8", "unreachable", line=1),)
