"""The records of the specification, R1 to R13, each as a row, and what lies between the rows."""

import pytest

from clusterip.client.view import View
from clusterip.dns.addresses import Addresses, address_of_reverse, endpoint_id, pod_address
from clusterip.dns.zone import Answer, Pods, Zone, labels
from clusterip.model.objects import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Namespace,
    ObjectMeta,
    Pod,
    PodIP,
    PodSpec,
    PodStatus,
    Service,
    ServicePort,
    ServiceSpec,
    Value,
)

DOMAIN = ("cluster", "local")


def namespace(name: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name))


def service(name: str, *ips: str, ports: tuple[ServicePort, ...] = (), external: str = "") -> Service:
    """`ips` is "None" for a headless one."""
    spec = ServiceSpec(
        type="ExternalName" if external else "ClusterIP",
        cluster_ip=ips[0] if ips else "",
        cluster_ips=ips,
        ports=ports,
        external_name=external,
    )
    return Service(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def endpoint(address: str, *, hostname: str | None = None, ready: bool | None = None) -> Endpoint:
    return Endpoint(addresses=(address,), hostname=hostname, conditions=EndpointConditions(ready=ready))


def slice_of(service_name: str, *endpoints: Endpoint, suffix: str = "1", port: int = 8080) -> EndpointSlice:
    family = "IPv6" if endpoints and ":" in endpoints[0].addresses[0] else "IPv4"
    meta = ObjectMeta(
        name=f"{service_name}-{suffix}",
        namespace="default",
        labels={"kubernetes.io/service-name": service_name},
    )
    return EndpointSlice(
        metadata=meta,
        address_type=family,
        endpoints=endpoints,
        ports=(EndpointPort(name="http", protocol="TCP", port=port), EndpointPort(name="", port=9999)),
    )


class World:
    """A view, the index beside it, and the zone of both, kept together as the process does."""

    def __init__(self, *values: Value, pods: Pods = Pods.INSECURE) -> None:
        self.view = View()
        self.addresses = Addresses()
        self.zone = Zone(DOMAIN, self.view, self.addresses, pods)
        self.put(*values)

    def put(self, *values: Value) -> frozenset[tuple[str, ...]]:
        return self.addresses.follow([(self.view.put(value), value) for value in values])

    def remove(self, value: Service) -> frozenset[tuple[str, ...]]:
        return self.addresses.follow(
            [(self.view.remove(type(value), value.metadata.namespace, value.metadata.name), None)]
        )


HTTP = ServicePort(port=80, name="http")
DNS_UDP = ServicePort(port=53, name="dns", protocol="UDP")
UNNAMED = ServicePort(port=81)

WORLD = World(
    namespace("default"),
    namespace("kube-system"),
    service("web", "10.96.0.20", ports=(HTTP, DNS_UDP, UNNAMED)),
    service("web6", "fd00:96::20", ports=(HTTP,)),
    service("both", "10.96.0.21", "fd00:96::21"),
    service("heads", "None"),
    slice_of("heads", endpoint("10.244.1.3"), endpoint("10.244.2.4", hostname="db-0", ready=True)),
    slice_of("heads", endpoint("10.244.1.9", ready=False), suffix="2"),
    slice_of("heads", endpoint("10.244.1.3"), suffix="3"),
    slice_of("heads", endpoint("fd00:1::3"), endpoint("fd00:1::"), suffix="6"),
    service("none-ready", "None"),
    slice_of("none-ready", endpoint("10.244.1.8", ready=False)),
    service("out", external="www.example.com"),
    service("inside", external="web.default.svc.cluster.local"),
    service("round", external="about.default.svc.cluster.local"),
    service("about", external="round.default.svc.cluster.local"),
    service("unborn"),
    service("nonsense", external="a..b"),
    service("longest", external="x" * 64),
    service("old", "10.096.0.9"),
    slice_of("web", endpoint("10.244.1.5", hostname="Front")),
)

Z = "cluster.local"
S = "default.svc.cluster.local"
NXDOMAIN, NODATA = "NXDOMAIN", "NODATA"

ROWS = [
    ("R1", f"dns-version.{Z}", "TXT", {'"1.1.0"'}),
    ("R2", f"web.{S}", "A", {"10.96.0.20"}),
    ("R2 dual stack", f"both.{S}", "A", {"10.96.0.21"}),
    ("R3", f"web6.{S}", "AAAA", {"fd00:96::20"}),
    ("R3 dual stack", f"both.{S}", "AAAA", {"fd00:96::21"}),
    ("the other family", f"web.{S}", "AAAA", NODATA),
    ("R4", f"_http._tcp.web.{S}", "SRV", {f"0 100 80 web.{S}."}),
    ("R4 UDP", f"_dns._udp.web.{S}", "SRV", {f"0 100 53 web.{S}."}),
    ("R4 not that protocol", f"_dns._tcp.web.{S}", "SRV", NXDOMAIN),
    ("R5", f"_._tcp.web.{S}", "SRV", NXDOMAIN),
    ("R6", "20.0.96.10.in-addr.arpa", "PTR", {f"web.{S}."}),
    ("R7", f"heads.{S}", "A", {"10.244.1.3", "10.244.2.4"}),
    ("R8", f"heads.{S}", "AAAA", {"fd00:1::3", "fd00:1::"}),
    ("R9", f"none-ready.{S}", "A", NXDOMAIN),
    ("R10 given", f"db-0.heads.{S}", "A", {"10.244.2.4"}),
    ("R10 made of the address", f"10-244-1-3.heads.{S}", "A", {"10.244.1.3"}),
    ("R10 IPv6", f"fd00-1--3.heads.{S}", "AAAA", {"fd00:1::3"}),
    ("R10 trailing dash", f"fd00-1--0.heads.{S}", "AAAA", {"fd00:1::"}),
    ("R10 not ready", f"10-244-1-9.heads.{S}", "A", NXDOMAIN),
    ("R10 of a ClusterIP Service", f"front.web.{S}", "A", {"10.244.1.5"}),
    (
        "R11",
        f"_http._tcp.heads.{S}",
        "SRV",
        {
            f"0 100 8080 {host}.heads.{S}."
            for host in ("10-244-1-3", "db-0", "fd00-1--3", "fd00-1--0")
        },
    ),
    ("R12", "4.2.244.10.in-addr.arpa", "PTR", {f"db-0.heads.{S}."}),
    ("R12 not ready", "9.1.244.10.in-addr.arpa", "PTR", None),
    ("R12 of a ClusterIP Service", "5.1.244.10.in-addr.arpa", "PTR", None),
    ("R13", f"out.{S}", "CNAME", {"www.example.com."}),
    ("R13 below", f"x.out.{S}", "A", NXDOMAIN),
    ("R13 to what is no name", f"nonsense.{S}", "A", NODATA),
    ("R13 to a label too long", f"longest.{S}", "CNAME", NODATA),
    ("an address that is read in two ways", f"old.{S}", "A", NXDOMAIN),
    ("the zone", Z, "SOA", {f"ns.dns.{Z}. hostmaster.{Z}. 1 7200 1800 86400 5"}),
    ("the zone's server", Z, "NS", {f"ns.dns.{Z}."}),
    ("the zone has no address", Z, "A", NODATA),
    ("between the zone and a namespace", f"svc.{Z}", "A", NODATA),
    ("a namespace", S, "A", NODATA),
    ("no such namespace", f"nowhere.svc.{Z}", "A", NXDOMAIN),
    ("no such Service", f"nobody.{S}", "A", NXDOMAIN),
    ("a Service that has no address yet", f"unborn.{S}", "A", NXDOMAIN),
    ("between a Service and its port", f"_tcp.web.{S}", "A", NODATA),
    ("no port of that protocol", f"_sctp.web.{S}", "A", NXDOMAIN),
    ("too deep", f"a._http._tcp.web.{S}", "SRV", NXDOMAIN),
    ("a pod", f"10-244-1-3.default.pod.{Z}", "A", {"10.244.1.3"}),
    ("a pod of IPv6", f"fd00--3.default.pod.{Z}", "AAAA", {"fd00::3"}),
    ("a pod of no namespace", f"10-244-1-3.nowhere.pod.{Z}", "A", NXDOMAIN),
    ("no address", f"10-244-1.default.pod.{Z}", "A", NXDOMAIN),
    ("a namespace of pods", f"default.pod.{Z}", "A", NODATA),
    ("nothing we know", f"www.{Z}", "A", NXDOMAIN),
    ("not our zone", "example.com", "A", None),
    ("not our zone though it ends alike", "mycluster.local", "A", None),
    ("not our address", "1.1.1.1.in-addr.arpa", "PTR", None),
    ("not a whole address", "96.10.in-addr.arpa", "PTR", None),
]  # fmt: skip


def said(answer: Answer | None) -> set[str] | str | None:
    if answer is None:
        return None
    if not answer.exists:
        return NXDOMAIN
    return {record.data for record in answer.records} or NODATA


@pytest.mark.parametrize(("rule", "name", "rtype", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_specification(rule: str, name: str, rtype: str, expected: set[str] | str | None) -> None:
    assert said(WORLD.zone.answer(labels(name), rtype)) == expected


@pytest.mark.parametrize(("name", "rtype"), [(f"web.{S}", "AAAA"), (f"nobody.{S}", "A"), (Z, "A")])
def test_a_no_carries_the_soa(name: str, rtype: str) -> None:
    answer = WORLD.zone.answer(labels(name), rtype)
    assert answer is not None
    assert [record.type for record in answer.authority] == ["SOA"]


def test_the_nibbles_of_an_ipv6_cluster_ip_lead_back_to_its_service() -> None:
    nibbles = ".".join(reversed("fd000096000000000000000000000020"))
    assert said(WORLD.zone.answer(labels(f"{nibbles}.ip6.arpa"), "PTR")) == {f"web6.{S}."}


def test_the_addresses_of_what_an_srv_points_at_come_along() -> None:
    answer = WORLD.zone.answer(labels(f"_http._tcp.heads.{S}"), "SRV")
    assert answer is not None
    assert {record.data for record in answer.additional} == {"10.244.1.3", "10.244.2.4", "fd00:1::3", "fd00:1::"}


def test_an_external_name_inside_the_zone_is_followed() -> None:
    answer = WORLD.zone.answer(labels(f"inside.{S}"), "A")
    assert answer is not None
    assert [(r.type, r.data) for r in answer.records] == [("CNAME", f"web.{S}."), ("A", "10.96.0.20")]


def test_an_external_name_outside_the_zone_is_to_be_chased() -> None:
    answer = WORLD.zone.answer(labels(f"out.{S}"), "A")
    assert answer is not None
    assert answer.chase == ("www", "example", "com")
    assert [r.type for r in answer.records] == ["CNAME"]


def test_external_names_in_a_circle_end() -> None:
    answer = WORLD.zone.answer(labels(f"round.{S}"), "A")
    assert answer is not None
    assert 0 < len(answer.records) < 10


def test_names_are_compared_without_case() -> None:
    assert said(WORLD.zone.answer(labels("WEB.Default.SVC.Cluster.Local"), "A")) == {"10.96.0.20"}


def test_the_name_of_the_server_has_the_dns_services_address() -> None:
    world = World(namespace("kube-system"))
    assert said(world.zone.answer(labels(f"ns.dns.{Z}"), "A")) == NODATA
    kube_dns = service("kube-dns", "10.96.0.10")
    world.put(type(kube_dns)(metadata=ObjectMeta(name="kube-dns", namespace="kube-system"), spec=kube_dns.spec))
    assert said(world.zone.answer(labels(f"ns.dns.{Z}"), "A")) == {"10.96.0.10"}


def test_pods_are_nowhere_when_disabled() -> None:
    world = World(namespace("default"), pods=Pods.DISABLED)
    assert said(world.zone.answer(labels(f"10-244-1-3.default.pod.{Z}"), "A")) == NXDOMAIN


def test_a_verified_pod_has_a_name_while_it_has_the_address() -> None:
    world = World(namespace("default"), pods=Pods.VERIFIED)
    name = labels(f"10-244-1-3.default.pod.{Z}")
    assert said(world.zone.answer(name, "A")) == NXDOMAIN
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="default"),
        spec=PodSpec(),
        status=PodStatus(phase="Running", pod_ip="10.244.1.3", pod_ips=(PodIP(ip="10.244.1.3"),)),
    )
    world.put(pod)
    assert said(world.zone.answer(name, "A")) == {"10.244.1.3"}
    world.put(Pod(metadata=pod.metadata, spec=pod.spec, status=PodStatus(phase="Succeeded", pod_ip="10.244.1.3")))
    assert said(world.zone.answer(name, "A")) == NXDOMAIN


def test_an_address_given_back_is_nobodys_and_given_anew_is_the_new_ones() -> None:
    old, new = service("old", "10.96.0.50"), service("new", "10.96.0.50")
    world = World(old)
    world.remove(old)
    name = labels("50.0.96.10.in-addr.arpa")
    assert world.zone.answer(name, "PTR") is None
    world.put(new)
    assert said(world.zone.answer(name, "PTR")) == {f"new.{S}."}


def test_a_change_makes_old_what_was_made_from_it_and_nothing_else() -> None:
    world = World(service("a", "10.96.0.1"), service("b", "10.96.0.2"))
    of_a = world.zone.answer(labels(f"a.{S}"), "A")
    of_b = world.zone.answer(labels(f"b.{S}"), "A")
    missing = world.zone.answer(labels(f"c.{S}"), "A")
    assert of_a is not None
    assert of_b is not None
    assert missing is not None
    assert of_a.concerns & world.put(service("a", "10.96.0.9"))
    assert not of_b.concerns & world.put(service("a", "10.96.0.10"))
    assert missing.concerns & world.put(service("c", "10.96.0.3"))


@pytest.mark.parametrize(
    ("address", "label"), [("10.244.1.3", "10-244-1-3"), ("fd00::3", "fd00--3"), ("fd00::", "fd00--0")]
)
def test_an_endpoint_without_host_name_is_called_by_its_address(address: str, label: str) -> None:
    assert endpoint_id(address) == label


@pytest.mark.parametrize("label", ["", "-", "10-244-1", "10-244-1-256", "web", "1-2-3-4-5", "10-244-1-03"])
def test_what_spells_no_address_is_no_pod(label: str) -> None:
    assert pod_address(label) is None


@pytest.mark.parametrize(
    "name", ["in-addr.arpa", "ip6.arpa", "1.2.3.in-addr.arpa", "a.b.c.d.in-addr.arpa", f"{'0.' * 31}_.ip6.arpa"]
)
def test_what_spells_no_whole_address_has_no_pointer(name: str) -> None:
    assert address_of_reverse(labels(name)) is None


def test_a_pointer_is_old_when_its_service_is_headless_no_more() -> None:
    heads, piece = service("heads", "None"), slice_of("heads", endpoint("10.244.1.3"))
    world = World(heads, piece)
    answer = world.zone.answer(labels("3.1.244.10.in-addr.arpa"), "PTR")
    assert answer is not None
    assert answer.concerns & world.put(service("heads", "10.96.0.5"))
