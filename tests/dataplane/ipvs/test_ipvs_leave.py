"""What of IPVS mode goes when another mode serves, and what waits for connections."""

from dataclasses import replace

from clusterip.dataplane.ipvs import At, Book, Config, Present, RealServer, compile_entry, sets
from clusterip.dataplane.ipvs.book import Seen
from clusterip.dataplane.ipvs.delta import Members, Servers, Verb
from clusterip.dataplane.ipvs.leave import depart, quiesce
from clusterip.dataplane.ipvs.sets import Member
from clusterip.services.table import Backend, Entry, PortName

CONFIG = Config(node_addresses=("192.168.50.11",))
ONE, TWO = RealServer("10.244.1.2", 8080), RealServer("10.244.2.2", 8080)
WEB = Entry(
    PortName("shop", "web", ""), "IPv4", "TCP", 80, "10.96.0.20", cluster=(Backend(*ONE, True), Backend(*TWO, False)),
    has_backends=True,
)  # fmt: skip
DNS = replace(WEB, name=PortName("shop", "web", "dns"), protocol="UDP")
TCP, UDP = At("TCP", "10.96.0.20", 80), At("UDP", "10.96.0.20", 80)
THEIRS = At("TCP", "203.0.113.9", 8443)


def seen(*entries: Entry, weight: int = 1) -> Seen:
    """The kernel with these, and a virtual server of somebody else's."""
    book = Book.of(compile_entry(entry, CONFIG) for entry in entries)
    servers = {s.at: Present(s.at, s.scheduler, 0, dict.fromkeys(s.reals, weight)) for s in book.servers}
    servers[THEIRS] = Present(THEIRS, "rr", 0, {ONE: 1})
    return Seen(servers=servers, members=frozenset(book.members), addresses=frozenset(book.addresses), device=True)


def test_nothing_of_ours_takes_new_connections_and_others_servers_go_on() -> None:
    (step,) = quiesce(seen(WEB), CONFIG)
    assert isinstance(step, Servers)
    assert {(c.verb, c.at, c.real, c.weight) for c in step.commands} == {
        (Verb.EDIT_REAL, TCP, ONE, 0),
        (Verb.EDIT_REAL, TCP, TWO, 0),
    }
    assert quiesce(seen(WEB, weight=0), CONFIG) == ()


def test_what_connections_are_on_stays_with_its_address() -> None:
    found = depart(seen(WEB), frozenset({(TCP, ONE)}), frozenset(), CONFIG)
    (step,) = found.steps
    assert isinstance(step, Servers)
    assert [(c.verb, c.at, c.real) for c in step.commands] == [(Verb.DELETE_REAL, TCP, ONE)]
    assert (found.addresses, found.stay) == ((), 1)


def test_what_has_none_goes_and_admits_nobody_before() -> None:
    found = depart(seen(WEB), frozenset({(TCP, ONE), (TCP, TWO)}), frozenset(), CONFIG)
    denied, gone = found.steps
    assert denied == Members("del KUBE-CLUSTER-IP 10.96.0.20,tcp:80\n")
    assert isinstance(gone, Servers)
    assert [(c.verb, c.at) for c in gone.commands] == [(Verb.DELETE_SERVER, TCP)]
    assert (found.addresses, found.stay) == (("10.96.0.20",), 0)


def test_an_address_waits_for_its_last_virtual_server() -> None:
    found = depart(seen(WEB, DNS), frozenset({(TCP, ONE), (TCP, TWO)}), frozenset({ONE, TWO}), CONFIG)
    assert (found.addresses, found.stay) == ((), 1)


def test_a_flow_without_an_end_goes_with_its_backend() -> None:
    found = depart(seen(DNS), frozenset(), frozenset({TWO}), CONFIG)
    (step,) = found.steps
    assert isinstance(step, Servers)
    assert [(c.verb, c.at, c.real) for c in step.commands] == [(Verb.DELETE_REAL, UDP, ONE)]


def test_virtual_servers_of_others_are_never_named() -> None:
    found = depart(seen(WEB), frozenset({(THEIRS, ONE), (TCP, ONE), (TCP, TWO)}), frozenset(), CONFIG)
    commands = [c for step in found.steps if isinstance(step, Servers) for c in step.commands]
    assert THEIRS not in {c.at for c in commands}


def test_ours_are_known_without_the_address_too() -> None:
    """IPv6 addresses leave the device first."""
    there = replace(seen(WEB), addresses=frozenset())
    assert Member(sets.ADDRESSES, "10.96.0.20") in there.members
    assert depart(there, frozenset({(TCP, ONE), (TCP, TWO)}), frozenset(), CONFIG).addresses == ("10.96.0.20",)
