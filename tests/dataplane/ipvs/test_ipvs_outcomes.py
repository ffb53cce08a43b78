"""What IPVS mode does otherwise than the specification, case by case."""

from clusterip.dataplane.ipvs import Config
from clusterip.dataplane.ipvs.plane import IPVS
from clusterip.dataplane.node import FromCIDR, Host
from clusterip.services.route import Delivered, Dropped, Outcomes, Packet, Rejected, Source
from clusterip.services.table import Backend, Entry, PortName

HOST = Host(frozenset({"192.168.50.11"}))
CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"), node_addresses=("192.168.50.11",))
HERE, THERE = Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080)
POD = Packet(Source.POD, "10.244.1.9", "10.96.0.10", 80)
OUTSIDE = Packet(Source.OUTSIDE, "203.0.113.5", "192.168.50.11", 30080)


def web(**more: object) -> Entry:
    given: dict[str, object] = {"cluster": (HERE, THERE), "has_backends": True, **more}
    return Entry(PortName("shop", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", **given)  # type: ignore[arg-type]


def seen(entry: Entry, packet: Packet) -> Outcomes:
    plane = IPVS(CONFIG, HOST)
    return plane.outcomes([plane.compile(entry)], packet)


def test_a_local_policy_without_a_backend_here_gives_way_to_the_clusters() -> None:
    entry = web(node_port=30080, external_local=True, cluster=(THERE,))
    assert seen(entry, OUTSIDE) == {Delivered("10.244.2.2", 8080, False)}


def test_a_port_of_no_service_on_a_cluster_ip_is_refused() -> None:
    assert seen(web(), Packet(Source.POD, "10.244.1.9", "10.96.0.10", 22)) == {Rejected()}


def test_a_service_without_backends_refuses() -> None:
    assert seen(web(cluster=(), has_backends=False), POD) == {Rejected()}


def test_a_backend_that_reaches_itself_is_masqueraded() -> None:
    found = seen(web(), Packet(Source.POD, "10.244.1.2", "10.96.0.10", 80))
    assert found == {Delivered("10.244.1.2", 8080, True), Delivered("10.244.2.2", 8080, False)}


def test_no_node_port_answers_on_loopback() -> None:
    plane = IPVS(Config(node_addresses=("127.0.0.1", "192.168.50.11")), HOST)
    places = {server.at.address for server in plane.compile(web(node_port=30080)).servers}
    assert places == {"10.96.0.10", "192.168.50.11"}


def test_the_node_is_dropped_where_the_source_ranges_leave_it_out() -> None:
    entry = web(load_balancer_ips=("192.0.2.200",), source_ranges=("203.0.113.0/24",))
    own = Packet(Source.NODE, "192.0.2.200", "192.0.2.200", 80)
    assert seen(entry, own) == {Dropped()}
    assert seen(entry, Packet(Source.OUTSIDE, "203.0.113.5", "192.0.2.200", 80)) != {Dropped()}
    assert seen(entry, Packet(Source.OUTSIDE, "198.18.0.1", "192.0.2.200", 80)) == {Dropped()}
