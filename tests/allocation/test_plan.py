from copy import deepcopy
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.allocation.plan import Plan, ip_address_object, plan
from clusterip.allocation.pool import PortPool
from clusterip.allocation.pools import Hold, Pools
from clusterip.model.service_update import carry_over, infer_families
from clusterip.model.status import ApiError, Object


def pools(*cidrs: str, ports: tuple[int, int] = (30000, 32767)) -> Pools:
    return Pools(PortPool(*ports), map(ip_network, cidrs or ("10.96.0.0/16", "fd00:96::/112")))


def service(ports: list[Object] | None = None, families: tuple[str, ...] = ("IPv4",), **spec: Any) -> Object:
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "type": "ClusterIP",
            "ipFamilies": list(families),
            "ipFamilyPolicy": "RequireDualStack" if len(families) == 2 else "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP"}] if ports is None else ports,
            **spec,
        },
    }


def carry(old: Object | None, new: Object) -> Object:
    """What the API server does to an update before it is planned."""
    service = deepcopy(new)
    carry_over(service, old)
    assert not infer_families(service, old, ("IPv4", "IPv6"))
    return service


def run(old: Object | None, new: Object | None, held: Pools, start: float = 0.0) -> Plan:
    """Plans, takes and settles, as a commit that succeeds does."""
    made = plan(old, new, held, lambda: start)
    held.take(made.hold)
    held.settle(made.hold)
    return made


def refused(old: Object | None, new: Object, held: Pools) -> ApiError:
    with pytest.raises(ApiError) as caught:
        plan(old, new, held, lambda: 0.0)
    return caught.value


def test_a_family_that_does_not_exist_is_left_to_validation() -> None:
    assert "clusterIPs" not in run(None, service(families=("IPv5",)), pools()).service["spec"]


def test_a_service_gets_an_address_of_the_dynamic_band_in_both_fields() -> None:
    made = run(None, service(), pools())
    assert made.service["spec"]["clusterIP"] == "10.96.1.1"
    assert made.service["spec"]["clusterIPs"] == ["10.96.1.1"]
    assert made.hold == Hold(take_addresses=(ip_address("10.96.1.1"),))
    assert made.dynamic == {ip_address("10.96.1.1")}


def test_a_plan_changes_neither_the_pools_nor_the_document() -> None:
    held, document = pools(), service(type="NodePort")
    plan(None, document, held, lambda: 0.0)
    assert "clusterIP" not in document["spec"]
    assert held.addresses[0].used == held.ports.used == 0


def test_two_services_get_two_addresses() -> None:
    held = pools()
    first, second = run(None, service(), held), run(None, service(), held)
    assert first.service["spec"]["clusterIP"] != second.service["spec"]["clusterIP"]


def test_headless_and_external_name_services_get_none() -> None:
    assert run(None, service(clusterIP="None", clusterIPs=["None"]), pools()).hold == Hold()
    assert run(None, service(type="ExternalName", externalName="example.org"), pools()).hold == Hold()


@pytest.mark.parametrize(
    ("address", "fragment"),
    [
        ("10.96.0.10", "failed to allocate IP 10.96.0.10: provided IP is already allocated"),
        ("10.97.0.1", "the provided network does not match the current range"),
        ("10.96.0.0", "is not in the valid range. The range of valid IPs is 10.96.0.0/16"),
    ],
)
def test_an_address_that_cannot_be_had_is_a_422_on_cluster_ips(address: str, fragment: str) -> None:
    held = pools()
    held.hold(ip_address("10.96.0.10"))
    error = refused(None, service(clusterIP=address, clusterIPs=[address]), held)
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.causes[0].field == "spec.clusterIPs"
    assert error.causes[0].reason == "FieldValueInvalid"
    assert fragment in error.causes[0].message
    assert fragment in error.message


def test_a_full_range_is_a_500() -> None:
    held = pools("192.168.0.0/29")
    for _ in range(6):
        run(None, service(), held)
    error = refused(None, service(), held)
    assert (error.code, error.reason) == (500, "InternalError")
    assert "failed to allocate a serviceIP: range is full" in error.message


def test_a_second_range_serves_when_the_first_is_full() -> None:
    held = pools("192.168.0.0/29", "10.0.0.0/24")
    for _ in range(6):
        run(None, service(), held)
    assert run(None, service(), held).service["spec"]["clusterIP"] == "10.0.0.17"


def test_overlapping_ranges_share_what_is_held() -> None:
    held = pools("10.0.0.0/24", "10.0.0.0/25")
    run(None, service(clusterIP="10.0.0.20", clusterIPs=["10.0.0.20"]), held)
    assert "already allocated" in refused(None, service(clusterIP="10.0.0.20", clusterIPs=["10.0.0.20"]), held).message
    assert [pool.used for pool in held.addresses] == [1, 1]


def test_nothing_new_is_given_from_a_closed_range() -> None:
    held = pools()
    run(None, service(clusterIP="10.96.0.10", clusterIPs=["10.96.0.10"]), held)
    held.serve([ip_network("10.0.0.0/24")], closed=[ip_network("10.96.0.0/16")])
    assert run(None, service(), held).service["spec"]["clusterIP"].startswith("10.0.0.")
    held.serve([ip_network("10.96.0.0/16")])
    assert ip_address("10.96.0.10") in held.addresses[0]


def test_two_families_get_two_addresses_in_their_order() -> None:
    made = run(None, service(families=("IPv6", "IPv4"), ipFamilyPolicy="RequireDualStack"), pools())
    assert made.service["spec"]["clusterIPs"] == ["fd00:96::101", "10.96.1.1"]
    assert made.service["spec"]["clusterIP"] == "fd00:96::101"


def test_going_to_two_families_keeps_the_first_address() -> None:
    held = pools()
    old = run(None, service(), held).service
    new = service(
        families=("IPv4", "IPv6"), ipFamilyPolicy="PreferDualStack", clusterIP="10.96.1.1", clusterIPs=["10.96.1.1"]
    )
    made = run(old, new, held)
    assert made.service["spec"]["clusterIPs"] == ["10.96.1.1", "fd00:96::101"]
    assert made.hold == Hold(take_addresses=(ip_address("fd00:96::101"),))


def test_going_back_to_one_family_releases_the_second_address() -> None:
    held = pools()
    old = run(None, service(families=("IPv4", "IPv6"), ipFamilyPolicy="PreferDualStack"), held).service
    single = {**old, "spec": {**old["spec"], "ipFamilyPolicy": "SingleStack"}}
    made = run(old, carry(old, single), held)
    assert made.service["spec"]["clusterIPs"] == ["10.96.1.1"]
    assert made.service["spec"]["ipFamilies"] == ["IPv4"]
    assert made.hold == Hold(release_addresses=(ip_address("fd00:96::101"),))
    assert [pool.used for pool in held.addresses] == [1, 0]


def test_an_update_keeps_what_it_leaves_out() -> None:
    held = pools()
    old = run(
        None, service(type="NodePort", ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81}]), held
    ).service
    new = service(type="NodePort", ports=[{"name": "b", "port": 8081}, {"name": "a", "port": 80}])
    made = run(old, carry(old, new), held)
    assert made.hold == Hold()
    assert made.service["spec"]["clusterIP"] == old["spec"]["clusterIP"]
    by_name = {port["name"]: port["nodePort"] for port in made.service["spec"]["ports"]}
    assert by_name == {port["name"]: port["nodePort"] for port in old["spec"]["ports"]}


def test_a_port_does_not_keep_a_number_that_another_port_asks_for() -> None:
    held = pools()
    old = run(None, service(type="NodePort", ports=[{"name": "a", "port": 80, "nodePort": 30080}]), held).service
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30080}]
    made = run(old, carry(old, service(type="NodePort", ports=ports)), held)
    assert [port["nodePort"] for port in made.service["spec"]["ports"]] == [30086, 30080]


def test_an_external_name_gives_its_address_and_ports_back_and_gets_new_ones_on_return() -> None:
    held = pools()
    old = run(None, service(type="NodePort"), held).service
    gone = carry(old, {**old, "spec": {**old["spec"], "type": "ExternalName", "externalName": "example.org"}})
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & gone["spec"].keys()
    assert "nodePort" not in gone["spec"]["ports"][0]
    made = run(old, gone, held)
    assert made.hold == Hold(release_addresses=(ip_address("10.96.1.1"),), release_ports=(30086,))
    assert held.addresses[0].used == held.ports.used == 0
    back = run(made.service, service(), held, start=0.5)
    assert back.hold.take_addresses == (ip_address(back.service["spec"]["clusterIP"]),)


def test_a_deletion_releases_everything() -> None:
    held = pools()
    old = run(
        None, service(type="LoadBalancer", externalTrafficPolicy="Local", families=("IPv4", "IPv6")), held
    ).service
    assert held.ports.used == 2
    run(old, None, held)
    assert [pool.used for pool in held.addresses] == [0, 0]
    assert held.ports.used == 0


def test_a_failed_commit_leaves_nothing_held() -> None:
    held = pools()
    made = plan(None, service(type="NodePort"), held, lambda: 0.0)
    held.take(made.hold)
    held.undo(made.hold)
    assert held.addresses[0].used == held.ports.used == 0


def test_ports_of_one_number_share_a_node_port_on_creation() -> None:
    both = [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = run(None, service(type="NodePort", ports=[*both, {"name": "m", "port": 9153, "protocol": "TCP"}]), pools())
    tcp, udp, other = (port["nodePort"] for port in made.service["spec"]["ports"])
    assert tcp == udp == 30086
    assert other == 30087
    assert made.hold.take_ports == (30086, 30087)


def test_a_node_port_named_by_one_is_adopted_by_the_others_of_that_port() -> None:
    both = [
        {"name": "t", "port": 53, "protocol": "TCP"},
        {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053},
    ]
    made = run(None, service(type="NodePort", ports=both), pools())
    assert [port["nodePort"] for port in made.service["spec"]["ports"]] == [30053, 30053]


def test_on_update_each_missing_node_port_is_chosen_by_itself() -> None:
    held = pools()
    old = run(None, service(), held).service
    both = [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = run(old, carry(old, service(type="NodePort", ports=both)), held)
    assert [port["nodePort"] for port in made.service["spec"]["ports"]] == [30086, 30087]


@pytest.mark.parametrize(
    ("port", "fragment"),
    [(30080, "provided port is already allocated"), (80, "The range of valid ports is 30000-32767")],
)
def test_a_node_port_that_cannot_be_had_is_a_422_on_that_port(port: int, fragment: str) -> None:
    held = pools()
    held.ports.reserve(30080)
    error = refused(
        None,
        service(type="NodePort", ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": port}]),
        held,
    )
    assert (error.code, error.causes[0].field) == (422, "spec.ports[1].nodePort")
    assert fragment in error.message


def test_exhausted_node_ports_are_a_500() -> None:
    held = pools(ports=(30000, 30001))
    run(None, service(type="NodePort", ports=[{"port": 1}, {"port": 2}]), held)
    assert "failed to allocate a nodePort: range is full" in refused(None, service(type="NodePort"), held).message


def test_the_same_node_port_twice_is_the_fields_fault_on_creation_and_an_error_on_update() -> None:
    twice = [{"name": "a", "port": 1, "nodePort": 30080}, {"name": "b", "port": 2, "nodePort": 30080}]
    held = pools()
    error = refused(None, service(type="NodePort", ports=twice), held)
    assert (error.code, error.causes[0].reason) == (422, "FieldValueDuplicate")
    assert error.causes[0].field == "spec.ports[1].nodePort"
    old = run(None, service(), held).service
    error = refused(old, carry(old, service(type="NodePort", ports=twice)), held)
    assert error.code == 500
    assert "duplicate nodePort" in error.message


def test_a_load_balancer_without_node_ports_gets_none_but_keeps_those_named() -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30081}]
    made = run(None, service(type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=ports), pools())
    assert made.hold.take_ports == (30081,)


def test_a_health_check_node_port_is_given_kept_and_released() -> None:
    held = pools()
    old = run(None, service(type="LoadBalancer", externalTrafficPolicy="Local"), held).service
    assert old["spec"]["healthCheckNodePort"] == 30087
    same = carry(old, service(type="LoadBalancer", externalTrafficPolicy="Local"))
    assert run(old, same, held).hold == Hold()
    cluster = {**old, "spec": {**old["spec"], "externalTrafficPolicy": "Cluster"}}
    assert run(old, carry(old, cluster), held).hold == Hold(release_ports=(30087,))


def test_a_health_check_node_port_that_is_taken_is_a_500() -> None:
    held = pools()
    held.ports.reserve(30080)
    document = service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=30080)
    error = refused(None, document, held)
    assert error.code == 500
    assert "failed to allocate requested HealthCheck NodePort 30080" in error.message


def test_the_ip_address_of_a_service_says_whose_it_is() -> None:
    assert ip_address_object(ip_address("fd00:96::a"), "default", "web") == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": "fd00:96::a",
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv6",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": "default", "name": "web"}},
    }


SHAPES = st.builds(
    service,
    ports=st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True).map(
        lambda numbers: [{"name": f"p{n}", "port": n, "protocol": "TCP"} for n in numbers]
    ),
    families=st.sampled_from([("IPv4",), ("IPv4", "IPv6")]),
    type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
    externalTrafficPolicy=st.sampled_from(["Cluster", "Local"]),
)


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | SHAPES, st.floats(0, 1, exclude_max=True)), max_size=25))
def test_the_pools_hold_exactly_what_the_services_say(steps: list[tuple[int, Object | None, float]]) -> None:
    held, services = pools("10.0.0.0/27", "fd00::/120", ports=(30000, 30019)), dict[int, Object]()
    for key, new, start in steps:
        old = services.get(key)
        if old is None and new is None:
            continue
        try:
            made = run(old, None if new is None else carry(old, new), held, start)
        except ApiError as error:
            if error.code != 500:  # full
                raise
            continue
        if new is None:
            del services[key]
        else:
            services[key] = made.service
    ips = [ip for s in services.values() for ip in s["spec"].get("clusterIPs", [])]
    node_ports = [p["nodePort"] for s in services.values() for p in s["spec"]["ports"] if "nodePort" in p]
    node_ports += [s["spec"]["healthCheckNodePort"] for s in services.values() if "healthCheckNodePort" in s["spec"]]
    assert len(ips) == len(set(ips)) == sum(pool.used for pool in held.addresses)
    assert len(node_ports) == len(set(node_ports)) == held.ports.used
