"""What an update keeps and what it drops (conformance 2.6, items 3 to 5 and 8)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import defaults
from clusterip.model.resources import SERVICES
from clusterip.model.service_update import carry_over, needs_node_ports
from clusterip.model.status import Object

ADDRESS = "10.96.0.20"


def stored(**spec: Any) -> Object:
    obj = service(**{"clusterIP": ADDRESS, "clusterIPs": [ADDRESS], "ipFamilies": ["IPv4"], **spec})
    obj["spec"].setdefault("ipFamilyPolicy", "SingleStack")
    return obj


def service(**spec: Any) -> Object:
    obj: Object = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], **spec}}
    defaults.apply(SERVICES, obj)
    return obj


def updated(old: Object, **spec: Any) -> Object:
    """The spec that comes of a client's document over a stored one."""
    obj = service(**spec)
    carry_over(obj, old)
    found: Object = obj["spec"]
    return found


def test_on_creation_the_list_follows_the_singular() -> None:
    obj = service(clusterIP=ADDRESS)
    carry_over(obj, None)
    assert obj["spec"]["clusterIPs"] == [ADDRESS]


def test_on_creation_the_singular_does_not_follow_the_list() -> None:
    obj = service(clusterIPs=[ADDRESS])
    carry_over(obj, None)
    assert "clusterIP" not in obj["spec"]


def test_the_address_stays_when_the_client_leaves_it_out() -> None:
    spec = updated(stored(), selector={"app": "new"})
    assert (spec["clusterIP"], spec["clusterIPs"]) == (ADDRESS, [ADDRESS])


def test_a_changed_singular_takes_an_unchanged_list_along() -> None:
    spec = updated(stored(), clusterIP="10.96.0.30", clusterIPs=[ADDRESS])
    assert spec["clusterIPs"] == ["10.96.0.30"]


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"type": "ClusterIP"}, False),
        ({"type": "NodePort"}, True),
        ({"type": "LoadBalancer"}, True),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, False),
        ({"type": "ExternalName"}, False),
    ],
)
def test_node_ports_are_needed_by_type_unless_the_balancer_does_without(spec: Object, needed: bool) -> None:
    assert needs_node_ports(spec) is needed


def test_node_ports_stay_by_the_name_of_their_port() -> None:
    old = stored(
        type="NodePort",
        ports=[{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30081}],
    )
    spec = updated(
        old, type="NodePort", ports=[{"name": "b", "port": 8081}, {"name": "c", "port": 82}, {"name": "a", "port": 80}]
    )
    assert [port.get("nodePort") for port in spec["ports"]] == [30081, None, 30080]


def test_a_node_port_used_elsewhere_in_the_new_document_is_not_kept() -> None:
    old = stored(type="NodePort", ports=[{"name": "a", "port": 80, "nodePort": 30080}])
    spec = updated(
        old, type="NodePort", ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30080}]
    )
    assert [port.get("nodePort") for port in spec["ports"]] == [None, 30080]


def test_the_health_check_port_stays_while_it_is_needed() -> None:
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    old = stored(**local, healthCheckNodePort=30001)
    assert updated(old, **local)["healthCheckNodePort"] == 30001
    assert "healthCheckNodePort" not in updated(old, type="LoadBalancer")


@pytest.mark.parametrize(
    ("old", "spec", "gone"),
    [
        (
            {},
            {"type": "ExternalName", "externalName": "a.b"},
            {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"},
        ),
        (
            {
                "type": "LoadBalancer",
                "loadBalancerClass": "example.com/a",
                "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30001,
            },
            {"type": "ClusterIP"},
            {"loadBalancerClass", "allocateLoadBalancerNodePorts", "externalTrafficPolicy", "healthCheckNodePort"},
        ),
    ],
)
def test_a_new_type_drops_what_the_client_left_as_it_was(old: Object, spec: Object, gone: set[str]) -> None:
    before = stored(**old)
    kept_by_client = {key: value for key, value in before["spec"].items() if key not in ("type", "ports")}
    after = updated(before, **{**kept_by_client, **spec})
    assert not after.keys() & gone


def test_a_new_type_keeps_what_the_client_changed_so_that_validation_speaks_up() -> None:
    spec = updated(stored(), type="ExternalName", externalName="a.b", clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"])
    assert spec["clusterIPs"] == ["10.96.0.9"]


def test_leaving_node_port_drops_the_numbers_and_the_balancers_status() -> None:
    old = stored(type="LoadBalancer", ports=[{"port": 80, "nodePort": 30080}])
    old["status"] = {"loadBalancer": {"ingress": [{"ip": "203.0.113.9", "ipMode": "VIP"}]}}
    new = service(ports=[{"port": 80, "nodePort": 30080}])
    new["status"] = old["status"]
    carry_over(new, old)
    assert "nodePort" not in new["spec"]["ports"][0]
    assert new["status"] == {"loadBalancer": {}}


@given(
    kind=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]),
    names=st.lists(st.sampled_from("abcd"), unique=True, min_size=1),
)
def test_sending_back_what_was_read_changes_nothing(kind: str, names: list[str]) -> None:
    ports = [{"name": name, "port": 80 + i, "nodePort": 30000 + i} for i, name in enumerate(names)]
    if kind == "ClusterIP":
        for port in ports:
            del port["nodePort"]
    old = stored(type=kind, ports=ports)
    assert updated(old, **old["spec"]) == old["spec"]
    # and so does sending only what a manifest says
    manifest = {"type": kind, "ports": [{"name": port["name"], "port": port["port"]} for port in ports]}
    after = updated(old, **manifest)
    assert after["ports"] == old["spec"]["ports"]
    assert after["clusterIPs"] == old["spec"]["clusterIPs"]
