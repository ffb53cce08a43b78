import pytest

from clusterip.client.view import View
from clusterip.controllers.endpointslice.wanted import conditions, families, groups, ports_of
from clusterip.model.objects import (
    Condition,
    Container,
    ContainerPort,
    EndpointConditions,
    Node,
    ObjectMeta,
    Pod,
    PodIP,
    PodSpec,
    PodStatus,
    Service,
    ServicePort,
    ServiceSpec,
)


def pod(name: str = "a", *, ready: bool = True, going: bool = False, ip: str = "10.244.1.2", **spec: object) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            deletion_timestamp="2026-01-01T00:00:00Z" if going else None,
        ),
        spec=PodSpec(node_name="node-1", **spec),  # type: ignore[arg-type]
        status=PodStatus(
            phase="Running",
            pod_ips=tuple(PodIP(ip=address) for address in ip.split(",") if address),
            conditions=(Condition(type="Ready", status=str(ready)),),
        ),
    )


def service(*ports: ServicePort, **spec: object) -> Service:
    return Service(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=ServiceSpec(ports=ports, selector={"app": "web"}, **spec),  # type: ignore[arg-type]
    )


def view(*nodes: Node) -> View:
    made = View()
    for node in nodes or (Node(metadata=ObjectMeta(name="node-1", labels={"topology.kubernetes.io/zone": "z1"})),):
        made.put(node)
    return made


@pytest.mark.parametrize(
    ("ready", "going", "publish", "expected"),
    [
        (False, False, False, (False, False, False)),
        (True, False, False, (True, True, False)),
        (False, True, False, (False, False, True)),
        (True, True, False, (False, True, True)),
        (False, False, True, (True, False, False)),
        (True, False, True, (True, True, False)),
        (False, True, True, (True, False, True)),
        (True, True, True, (True, True, True)),
    ],
)
def test_the_conditions_of_every_row_of_the_truth_table(
    ready: bool, going: bool, publish: bool, expected: tuple[bool, bool, bool]
) -> None:
    found = conditions(pod(ready=ready, going=going), publish_not_ready=publish)
    assert found == EndpointConditions(ready=expected[0], serving=expected[1], terminating=expected[2])


def test_an_endpoint_shows_where_and_what_its_pod_is() -> None:
    (group,) = groups(service(ServicePort(port=80)), [pod()], view(), "IPv4")
    (endpoint,) = group.endpoints
    assert endpoint.addresses == ("10.244.1.2",)
    assert (endpoint.node_name, endpoint.zone, endpoint.hostname) == ("node-1", "z1", None)
    assert endpoint.target_ref is not None
    assert (endpoint.target_ref.kind, endpoint.target_ref.name, endpoint.target_ref.uid) == ("Pod", "a", "uid-a")


@pytest.mark.parametrize(("subdomain", "expected"), [("web", "first"), ("other", None), ("", None)])
def test_a_hostname_counts_only_in_the_subdomain_of_the_service(subdomain: str, expected: str | None) -> None:
    (group,) = groups(service(), [pod(hostname="first", subdomain=subdomain)], view(), "IPv4")
    assert group.endpoints[0].hostname == expected


def test_each_family_takes_the_pods_that_have_an_address_of_it() -> None:
    pods = [pod("a", ip="10.244.1.2,fd00:1:1::2"), pod("b", ip="10.244.1.3"), pod("c", ip="")]
    for family, expected in (("IPv4", ["10.244.1.2", "10.244.1.3"]), ("IPv6", ["fd00:1:1::2"])):
        (group,) = groups(service(), pods, view(), family)
        assert [endpoint.addresses[0] for endpoint in group.endpoints] == expected


def test_ended_pods_are_no_endpoints_even_when_not_ready_ones_are_published() -> None:
    ended = Pod(
        metadata=pod().metadata, spec=pod().spec, status=PodStatus(phase="Failed", pod_ips=(PodIP(ip="10.1.1.1"),))
    )
    assert groups(service(publish_not_ready_addresses=True), [ended], view(), "IPv4") == ()


def test_a_pod_of_an_unknown_node_waits_for_it_unless_not_ready_ones_are_published() -> None:
    elsewhere = view(Node(metadata=ObjectMeta(name="node-2")))
    assert groups(service(), [pod()], elsewhere, "IPv4") == ()
    (group,) = groups(service(publish_not_ready_addresses=True), [pod()], elsewhere, "IPv4")
    assert group.endpoints[0].zone is None


def test_numbers_names_and_defaults_of_ports() -> None:
    containers = (Container(name="c", ports=(ContainerPort(container_port=8080, name="http"),)),)
    sidecars = (
        Container(name="s", restart_policy="Always", ports=(ContainerPort(container_port=9090, name="metrics"),)),
        Container(name="i", ports=(ContainerPort(container_port=7070, name="setup"),)),
    )
    ports = ports_of(
        service(
            ServicePort(name="n", port=1, target_port=5000),
            ServicePort(name="h", port=2, target_port="http", app_protocol="kubernetes.io/h2c"),
            ServicePort(name="m", port=3, target_port="metrics"),
            ServicePort(name="s", port=4, target_port="setup"),
            ServicePort(name="u", port=5, target_port="http", protocol="UDP"),
            ServicePort(name="d", port=6),
        ),
        pod(containers=containers, init_containers=sidecars),
    )
    assert {port.name: port.port for port in ports} == {"n": 5000, "h": 8080, "m": 9090, "d": 6}
    assert next(port for port in ports if port.name == "h").app_protocol == "kubernetes.io/h2c"


def test_pods_with_other_numbers_for_one_name_are_of_another_group() -> None:
    def with_port(name: str, number: int) -> Pod:
        return pod(name, containers=(Container(name="c", ports=(ContainerPort(container_port=number, name="http"),)),))

    named = service(ServicePort(port=80, target_port="http"))
    found = groups(named, [with_port("a", 1), with_port("b", 2), with_port("c", 1), pod("d")], view(), "IPv4")
    grouped = {tuple(p.port for p in g.ports): [e.target_ref.name for e in g.endpoints if e.target_ref] for g in found}
    assert grouped == {(1,): ["a", "c"], (2,): ["b"], (): ["d"]}


def test_families_come_from_the_service_or_from_its_addresses() -> None:
    assert families(service(ip_families=("IPv6", "IPv4"))) == ("IPv6", "IPv4")
    assert families(service(cluster_ip="fd00:96::a")) == ("IPv6",)
    assert families(service(cluster_ip="None")) == ("IPv4", "IPv6")
