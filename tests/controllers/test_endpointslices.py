import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.controllers.world import World
from tests.examples import share

from clusterip.controllers.endpointslice.controller import EndpointSlices
from clusterip.controllers.endpointslice.triggers import TRIGGER_TIME, Seen, text, trigger
from clusterip.controllers.writes import Create, Delete, Update
from clusterip.model.objects import EndpointSlice, Event
from clusterip.model.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES

LABELS = {
    "kubernetes.io/service-name": "web",
    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
}


@pytest.fixture
def world() -> World:
    made = World().follow(EndpointSlices())
    made.node("node-1", "z1")
    return made


def only(world: World) -> EndpointSlice:
    (found,) = world.all(EndpointSlice)
    return found


def test_a_service_without_pods_has_a_placeholder(world: World) -> None:
    world.service()
    (write,) = world.settle()
    assert isinstance(write, Create)
    assert (write.object["endpoints"], write.object["ports"], write.object["addressType"]) == ([], [], "IPv4")


def test_the_metadata_of_a_slice(world: World) -> None:
    service = world.service(metadata={"labels": {"team": "shop", "service.kubernetes.io/headless": "no"}})
    world.settle()
    meta = world.documents[ENDPOINT_SLICES, "default", only(world).metadata.name]["metadata"]
    assert meta["generateName"] == "web-"
    assert meta["labels"] == {**LABELS, "team": "shop"}
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "name": "web",
            "uid": service["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert meta["annotations"] == {TRIGGER_TIME: "2023-11-14T22:00:00Z"}


def test_a_headless_service_marks_its_slices(world: World) -> None:
    world.service(clusterIP="None", ports=[])
    world.pod("a", "10.244.1.2")
    world.settle()
    assert only(world).metadata.labels["service.kubernetes.io/headless"] == ""
    assert only(world).ports == ()
    assert len(only(world).endpoints or ()) == 1


def test_external_names_and_services_without_selector_are_left_alone(world: World) -> None:
    world.service("a", type="ExternalName")
    world.service("b", selector=None)
    world.pod("p", "10.244.1.2", labels={"app": "a"})
    assert world.settle() == []


def test_an_empty_selector_means_every_pod_of_the_namespace(world: World) -> None:
    world.service(selector={})
    world.pod("a", "10.244.1.2", labels={"any": "thing"})
    world.settle()
    assert len(only(world).endpoints or ()) == 1


def test_readiness_is_one_update_of_one_slice_with_its_trigger_time(world: World) -> None:
    world.service()
    world.pod("a", "10.244.1.2")
    world.settle()
    name = only(world).metadata.name
    world.pod(
        "a",
        "10.244.1.2",
        ready=False,
        status={"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2023-11-14T22:11:00Z"}]},
    )
    (write,) = world.settle()
    assert isinstance(write, Update)
    assert write.name == name
    assert write.object["endpoints"][0]["conditions"] == {"ready": False, "serving": False, "terminating": False}
    assert write.object["metadata"]["annotations"] == {TRIGGER_TIME: "2023-11-14T22:11:00Z"}
    assert write.object["metadata"]["resourceVersion"]
    json.dumps(write.object)


def test_a_change_that_no_endpoint_shows_writes_nothing(world: World) -> None:
    world.service()
    world.pod("a", "10.244.1.2")
    world.settle()
    world.pod("a", "10.244.1.2", status={"startTime": "2023-11-14T22:00:00Z"}, metadata={"annotations": {"x": "y"}})
    assert world.settle() == []


def test_a_change_without_a_new_moment_takes_the_annotation_away(world: World) -> None:
    world.service()
    world.pod("a", "10.244.1.2")
    world.settle()
    world.pod("a", "10.244.1.2", metadata={"deletionTimestamp": "2023-11-14T22:12:00Z"})
    (write,) = world.settle()
    assert isinstance(write, Update)
    assert "annotations" not in write.object["metadata"]


def test_the_trigger_time_is_the_earliest_new_moment() -> None:
    assert trigger(None, Seen(5.0, {"a": 1.0})) == 5.0
    assert trigger(Seen(5.0, {"a": 1.0}), Seen(5.0, {"a": 1.0})) == 0.0
    assert trigger(Seen(5.0, {"a": 1.0}), Seen(5.0, {"a": 9.0, "b": 7.0})) == 7.0
    assert trigger(Seen(5.0, {}), Seen(6.0, {"b": 7.0})) == 6.0
    assert text(1_700_000_000.25) == "2023-11-14T22:13:20.25Z"


def test_labels_of_the_service_are_copied_when_they_change(world: World) -> None:
    world.service()
    world.settle()
    world.service(metadata={"labels": {"team": "shop"}})
    (write,) = world.settle()
    assert isinstance(write, Update)
    assert write.object["metadata"]["labels"] == {**LABELS, "team": "shop"}


def test_slices_of_an_older_service_of_that_name_are_deleted(world: World) -> None:
    world.service()
    world.settle()
    world.put(
        SERVICES,
        {
            **world.documents[SERVICES, "default", "web"],
            "metadata": {"name": "web", "namespace": "default", "uid": "another"},
        },
    )
    writes = world.settle()
    assert [type(write) for write in writes] == [Create, Delete]


def test_two_families_have_slices_of_their_own(world: World) -> None:
    world.service(ipFamilies=["IPv4", "IPv6"])
    world.pod("a", "10.244.1.2", status={"podIPs": [{"ip": "10.244.1.2"}, {"ip": "fd00:1:1::2"}]})
    world.settle()
    found = {s.address_type: (s.endpoints or ())[0].addresses for s in world.all(EndpointSlice)}
    assert found == {"IPv4": ("10.244.1.2",), "IPv6": ("fd00:1:1::2",)}
    world.service(ipFamilies=["IPv4"])
    (write,) = world.settle()
    assert isinstance(write, Delete)


def test_a_service_on_its_way_out_gets_no_new_slices(world: World) -> None:
    world.service(metadata={"deletionTimestamp": "2023-11-14T22:12:00Z", "finalizers": ["x"]})
    world.pod("a", "10.244.1.2")
    assert world.settle() == []


def test_a_slice_that_somebody_deletes_or_changes_is_put_right(world: World) -> None:
    world.service()
    world.pod("a", "10.244.1.2")
    world.settle()
    world.patch(ENDPOINT_SLICES, "default", only(world).metadata.name, {"endpoints": []})
    assert len(world.settle()) == 1
    assert len(only(world).endpoints or ()) == 1
    world.remove(ENDPOINT_SLICES, "default", only(world).metadata.name)
    world.settle()
    assert len(only(world).endpoints or ()) == 1


def test_a_pod_on_a_node_that_comes_later_is_added_then(world: World) -> None:
    world.service()
    world.pod("a", "10.244.2.2", spec={"nodeName": "node-2"})
    world.settle()
    assert not only(world).endpoints
    world.node("node-2", "z2")
    world.settle()
    assert (only(world).endpoints or ())[0].zone == "z2"
    world.node("node-2", "z3")
    world.settle()
    assert (only(world).endpoints or ())[0].zone == "z3"


def test_only_services_that_select_the_pod_are_planned(world: World) -> None:
    for number in range(50):
        world.service(f"s{number}", selector={"common": "yes", "app": f"s{number}"})
    world.settle()
    controller = EndpointSlices()
    world.follow(controller)
    world.pod("a", "10.244.1.2", labels={"common": "yes", "app": "s7"})
    assert {key.name for of, key in world._due if of is controller} == {"s7"}


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        (None, None),
        ("PreferClose", {"forZones": [{"name": "z1"}]}),
        ("PreferSameZone", {"forZones": [{"name": "z1"}]}),
        ("PreferSameNode", {"forZones": [{"name": "z1"}], "forNodes": [{"name": "node-1"}]}),
    ],
)
def test_traffic_distribution_hints_ready_endpoints(world: World, distribution: str | None, expected: object) -> None:
    world.service(trafficDistribution=distribution)
    world.pod("a", "10.244.1.2")
    world.pod("b", "10.244.1.3", ready=False)
    world.settle()
    first, second = world.documents[ENDPOINT_SLICES, "default", only(world).metadata.name]["endpoints"]
    assert first.get("hints") == expected
    assert "hints" not in second


def test_topology_auto_deals_endpoints_to_zones_and_says_so(world: World) -> None:
    world.node("node-2", "z2")
    auto = {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}
    world.service(metadata=auto, trafficDistribution="PreferSameNode")
    for number in range(6):
        world.pod(f"p{number}", f"10.244.1.{number + 2}", spec={"nodeName": "node-1" if number < 5 else "node-2"})
    world.settle()
    zones = [e.hints.for_zones[0].name for e in only(world).endpoints or () if e.hints and e.hints.for_zones]
    assert sorted(zones) == ["z1", "z1", "z1", "z2", "z2", "z2"]
    assert [event.reason for event in world.all(Event)] == ["TopologyAwareHintsEnabled"]
    world.patch(NODES, "", "node-2", {"metadata": {"labels": {"topology.kubernetes.io/zone": None}}})
    world.settle()
    assert not any(endpoint.hints for endpoint in only(world).endpoints or ())
    assert sorted(event.reason for event in world.all(Event))[0] == "TopologyAwareHintsDisabled"


STEPS = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from(["ready", "unready", "going", "gone", "ended", "relabel"])),
    max_size=25,
)


@settings(max_examples=share(30))
@given(STEPS, st.integers(1, 4))
def test_after_any_pod_changes_the_slices_are_what_the_pods_say(steps: list[tuple[int, str]], limit: int) -> None:
    world = World().follow(EndpointSlices(limit))
    world.node("node-1", "z1")
    world.service()
    for number, act in steps:
        name, ip = f"p{number}", f"10.244.1.{number + 2}"
        match act:
            case "gone":
                if (PODS, "default", name) in world.documents:
                    world.remove(PODS, "default", name)
            case "going":
                world.pod(name, ip, metadata={"deletionTimestamp": "2023-11-14T22:12:00Z"})
            case "ended":
                world.pod(name, ip, status={"phase": "Failed"})
            case "relabel":
                world.pod(name, ip, labels={"app": "other"})
            case _:
                world.pod(name, ip, ready=act == "ready")
        world.settle()
        held = {e.addresses[0]: e.conditions for s in world.all(EndpointSlice) for e in s.endpoints or ()}
        expected = {
            document["status"]["podIP"]
            for (of, _, _), document in world.documents.items()
            if of is PODS
            and document["status"]["phase"] == "Running"
            and document["metadata"]["labels"]["app"] == "web"
        }
        assert set(held) == expected
        assert all(len(s.endpoints or ()) <= limit for s in world.all(EndpointSlice))
