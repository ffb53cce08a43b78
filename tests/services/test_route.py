"""The masquerade matrix and the policies, row by row. Everything else is held against `route`, so `route` by tables."""

from dataclasses import replace

import pytest

from clusterip.services.route import Delivered, Dropped, Packet, Passed, Policy, Rejected, Source, route
from clusterip.services.table import Backend, Entry, PortName

HERE, THERE = Backend("10.244.1.2", 8080, local=True), Backend("10.244.2.2", 8080)
ENTRY = Entry(
    PortName("default", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.10",
    node_port=30080,
    external_ips=("198.51.100.7",),
    load_balancer_ips=("192.0.2.200",),
    cluster=(HERE, THERE),
    local=(HERE,),
    has_backends=True,
)
POLICY = Policy(node_port_addresses=frozenset({"192.168.50.11"}), node_ip="192.168.50.11")
POD, NODE, OUTSIDE = "10.244.1.9", "192.168.50.11", "203.0.113.5"
SOURCES = {POD: Source.POD, NODE: Source.NODE, OUTSIDE: Source.OUTSIDE}
EXTERNAL = (("192.168.50.11", 30080), ("198.51.100.7", 80), ("192.0.2.200", 80))


def ways(entry: Entry, source: str, address: str, port: int, policy: Policy = POLICY) -> str:
    found = route([entry], Packet(SOURCES[source], source, address, port), policy)
    said = []
    for outcome in found:
        match outcome:
            case Delivered(address, _, masqueraded):
                place = "here" if address == HERE.address else "there"
                said.append(f"{place}{' masqueraded' if masqueraded else ''}")
            case Dropped() | Rejected() | Passed():
                said.append(type(outcome).__name__.lower())
    return ", ".join(sorted(said))


KEPT, HIDDEN = "here, there", "here masqueraded, there masqueraded"


@pytest.mark.parametrize(
    ("source", "cluster_ip", "external_cluster", "external_local"),
    [
        (POD, KEPT, HIDDEN, KEPT),
        (NODE, HIDDEN, HIDDEN, HIDDEN),
        (OUTSIDE, HIDDEN, HIDDEN, "here"),
    ],
)
def test_the_masquerade_matrix(source: str, cluster_ip: str, external_cluster: str, external_local: str) -> None:
    local = replace(ENTRY, external_local=True)
    assert ways(ENTRY, source, "10.96.0.10", 80) == cluster_ip
    for address, port in EXTERNAL:
        assert ways(ENTRY, source, address, port) == external_cluster
        assert ways(local, source, address, port) == external_local


@pytest.mark.parametrize(("source", "want"), [(POD, "here"), (NODE, "here masqueraded"), (OUTSIDE, "here masqueraded")])
def test_internal_policy_keeps_traffic_to_the_cluster_ip_on_the_node(source: str, want: str) -> None:
    local = replace(ENTRY, internal_local=True)
    assert ways(local, source, "10.96.0.10", 80) == want
    for address, port in EXTERNAL:
        assert ways(local, source, address, port) == ways(ENTRY, source, address, port)


def test_where_pods_cannot_be_told_apart_they_count_as_outside() -> None:
    blind = replace(POLICY, detects_pods=False)
    local = replace(ENTRY, external_local=True)
    for source in SOURCES:
        assert ways(ENTRY, source, "10.96.0.10", 80, blind) == KEPT
    assert ways(local, POD, "198.51.100.7", 80, blind) == "here"


def test_masquerade_all_hides_every_source_at_the_cluster_ip() -> None:
    for source in SOURCES:
        assert ways(ENTRY, source, "10.96.0.10", 80, replace(POLICY, masquerade_all=True)) == HIDDEN
    local = replace(ENTRY, external_local=True)
    assert ways(local, POD, "198.51.100.7", 80, replace(POLICY, masquerade_all=True)) == KEPT


def test_a_pod_that_gets_itself_is_masqueraded() -> None:
    found = route([ENTRY], Packet(Source.POD, HERE.address, "10.96.0.10", 80), POLICY)
    assert found == {Delivered(HERE.address, 8080, True), Delivered(THERE.address, 8080, False)}


@pytest.mark.parametrize("source", SOURCES)
def test_without_a_backend_anywhere_every_frontend_refuses(source: str) -> None:
    empty = replace(ENTRY, cluster=(), local=(), has_backends=False, internal_local=True, external_local=True)
    for address, port in (("10.96.0.10", 80), *EXTERNAL):
        assert ways(empty, source, address, port) == "rejected"


def test_local_policies_drop_where_backends_are_elsewhere_only() -> None:
    elsewhere = replace(ENTRY, cluster=(THERE,), local=(), internal_local=True, external_local=True)
    for source in SOURCES:
        assert ways(elsewhere, source, "10.96.0.10", 80) == "dropped"
    for address, port in EXTERNAL:
        assert ways(elsewhere, OUTSIDE, address, port) == "dropped"
        assert ways(elsewhere, POD, address, port) == "there"
        assert ways(elsewhere, NODE, address, port) == "there masqueraded"


def test_source_ranges_bind_load_balancer_addresses_only() -> None:
    restricted = replace(ENTRY, source_ranges=("203.0.113.0/24",))
    assert ways(restricted, OUTSIDE, "192.0.2.200", 80) == HIDDEN
    assert ways(restricted, POD, "192.0.2.200", 80) == "dropped"
    for address, port in (("10.96.0.10", 80), *EXTERNAL[:2]):
        assert ways(restricted, POD, address, port) == ways(ENTRY, POD, address, port)


def test_a_node_within_the_ranges_may_use_the_load_balancers_address_as_its_source() -> None:
    packet = Packet(Source.NODE, "192.0.2.200", "192.0.2.200", 80)
    within = replace(ENTRY, source_ranges=("192.168.50.0/24",))
    without = replace(ENTRY, source_ranges=("203.0.113.0/24",))
    assert Dropped() not in route([within], packet, POLICY)
    assert route([without], packet, POLICY) == {Dropped()}


@pytest.mark.parametrize(
    ("address", "port"), [("10.96.0.10", 81), ("10.96.0.11", 80), ("10.96.0.10", 30080), ("192.168.50.12", 30080)]
)
def test_what_no_service_has_passes(address: str, port: int) -> None:
    assert ways(ENTRY, POD, address, port) == "passed"


def test_protocols_are_kept_apart() -> None:
    assert route([ENTRY], Packet(Source.POD, POD, "10.96.0.10", 80, "UDP"), POLICY) == {Passed()}
