"""`ipvsadm -Sn` and what we print are inverses; listings give the same services."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.rulesets import ipvs

LISTED = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr persistent 10800 mask 255.255.255.0
  -> 192.0.2.1:6443               Masq    1      2          3
  -> 192.0.2.2:6443               Masq    0      0          1
UDP  10.96.0.10:53 sh (sh-port,sh-fallback) ops
  -> 10.244.1.5:53                Route   5      0          0
TCP  [fd00:96::1]:443 lc
  -> [fd00::5]:6443               Tunnel  1      0          0
FWM  7 wrr persistent 600
SCTP 10.96.0.9:5000 mh (mh-port) pe sip
"""


def test_a_listing_is_read_in_full() -> None:
    reading = ipvs.read(LISTED)
    assert reading.problems == ()
    assert reading.facts == 9
    first, dns, six, marked, sctp = reading.values.services
    assert first == ipvs.VirtualService(
        ipvs.Frontend("TCP", "10.96.0.1", 443),
        "rr",
        10800,
        "255.255.255.0",
        servers=(
            ipvs.RealServer("192.0.2.1", 6443, "Masq", 1, 2, 3),
            ipvs.RealServer("192.0.2.2", 6443, "Masq", 0, 0, 1),
        ),
        line=4,
    )
    assert (dns.scheduler, dns.flags, dns.one_packet) == ("sh", ("sh-port", "sh-fallback"), True)
    assert dns.servers[0].forward == "Route"
    assert six.frontend == ("TCP", "fd00:96::1", 443)
    assert (six.servers[0].address, six.servers[0].forward) == ("fd00::5", "Tunnel")
    assert (marked.frontend, marked.persistent, marked.servers) == (("FWM", "", 7), 600, ())
    assert (sctp.flags, sctp.engine) == (("mh-port",), "sip")
    assert reading.values.get("tcp", "10.96.0.1", 443) is first
    assert reading.values.get("udp", "10.96.0.1", 443) is None


def test_figures_are_kept_by_their_headings() -> None:
    text = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.96.0.1:443                       5       20       15     2K     9000
  -> 192.0.2.1:6443                      5       20       15     2K     9000
"""
    [service] = ipvs.read(text).values.services
    expected = {"Conns": "5", "InPkts": "20", "OutPkts": "15", "InBytes": "2K", "OutBytes": "9000"}
    assert service.figures == expected
    assert service.scheduler == ""
    assert service.servers[0].figures == expected
    assert service.servers[0].weight is None


def test_names_instead_of_addresses_are_a_problem() -> None:
    reading = ipvs.read(
        "Prot LocalAddress:Port Scheduler Flags\nTCP  node-1.example:https rr\n  -> web:http Masq 1 0 0\n"
    )
    assert ["is a name" in problem.why for problem in reading.problems] == [True, True]
    assert [problem.line for problem in reading.problems] == [2, 3]


ports = st.integers(0, 65535)
addresses = st.ip_addresses().map(str)
servers = st.builds(
    ipvs.RealServer,
    addresses,
    ports,
    st.sampled_from(["Masq", "Route", "Tunnel"]),
    st.integers(0, 65535),
    more=st.sampled_from([(), ("-x", "10", "-y", "5"), ("--tun-type", "ipip")]),
)
frontends = st.one_of(
    st.builds(ipvs.Frontend, st.sampled_from(["TCP", "UDP", "SCTP"]), addresses, ports),
    st.builds(ipvs.Frontend, st.just("FWM"), st.just(""), st.integers(1, 2**31)),
)
services = st.builds(
    ipvs.VirtualService,
    frontends,
    st.sampled_from(["rr", "lc", "mh"]),
    st.integers(0, 10**6),
    st.sampled_from(["", "255.255.255.0"]),
    st.booleans(),
    st.sampled_from([(), ("sh-port",), ("mh-port", "mh-fallback")]),
    st.sampled_from(["", "sip"]),
    st.lists(servers, max_size=3).map(tuple),
)


@given(st.lists(services, max_size=4, unique_by=lambda s: s.frontend).map(tuple))
def test_what_is_written_can_be_read(given_services: tuple[ipvs.VirtualService, ...]) -> None:
    reading = ipvs.read(ipvs.text(ipvs.Services(given_services)))
    assert reading.problems == ()
    assert [(s.frontend, s.scheduler, s.persistent, s.netmask) for s in reading.values.services] == [
        (s.frontend, s.scheduler, s.persistent, s.netmask) for s in given_services
    ]
    assert [(s.one_packet, s.flags, s.engine, s.servers) for s in reading.values.services] == [
        (s.one_packet, s.flags, s.engine, s.servers) for s in given_services
    ]


def test_what_s_prints_says_what_the_listing_says() -> None:
    listed = ipvs.read(LISTED).values
    printed = ipvs.text(listed)
    assert "-A -t 10.96.0.1:443 -s rr -p 10800 -M 255.255.255.0\n" in printed
    assert "-a -t 10.96.0.1:443 -r 192.0.2.2:6443 -m -w 0\n" in printed
    assert "-a -t [fd00:96::1]:443 -r [fd00::5]:6443 -i -w 1\n" in printed
    assert "-A -f 7 -s wrr -p 600\n" in printed
    again = ipvs.read(printed).values
    assert [(s.frontend, s.scheduler, len(s.servers)) for s in again.services] == [
        (s.frontend, s.scheduler, len(s.servers)) for s in listed.services
    ]


CONNECTIONS = """\
IPVS connection entries
pro expire state       source             virtual            destination
TCP 14:59  ESTABLISHED 10.244.1.9:40000   10.96.0.1:443      192.0.2.1:6443
TCP 179:59 NONE        10.244.1.9:0       10.96.0.1:443      192.0.2.1:6443
UDP 00:09  UDP         [fd00::9]:5000     [fd00:96::a]:53    [fd00::5]:53 sip call-1
"""


def test_connections_are_read() -> None:
    reading = ipvs.read_connections(CONNECTIONS)
    assert reading.problems == ()
    one, template, six = reading.values.connections
    assert (one.expires, one.client, one.client_port, one.destination_port) == (899, "10.244.1.9", 40000, 6443)
    assert (template.state, template.client_port, template.expires) == ("NONE", 0, 10799)
    assert (six.virtual, six.more, six.line) == ("fd00:96::a", ("sip", "call-1"), 5)


@pytest.mark.parametrize(
    "line",
    [
        "TCP",
        "TCP nonsense rr",
        "  -> 10.0.0.1:80 Masq 1 0 0",
        "-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m",
        "-A -q x",
        "GRE 1:2 rr",
    ],
)
def test_lines_that_make_no_service_are_named(line: str) -> None:
    reading = ipvs.read(f"Prot LocalAddress:Port Scheduler Flags\n{line}\n")
    assert [problem.line for problem in reading.problems] == [2]
    assert reading.values.services == ()
