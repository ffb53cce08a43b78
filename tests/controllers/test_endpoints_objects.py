from typing import Any

import pytest
from tests.controllers.world import World

from clusterip.controllers import endpoints as room
from clusterip.controllers.endpoints import EndpointsObjects
from clusterip.controllers.writes import Create, Delete, Update
from clusterip.model.objects import Endpoints
from clusterip.model.resources import ENDPOINTS, SERVICES
from clusterip.model.status import Object


@pytest.fixture
def world() -> World:
    made = World().follow(EndpointsObjects())
    made.node("node-1")
    return made


def document(world: World) -> Object:
    return world.documents[ENDPOINTS, "default", "web"]


def named(subset: dict[str, Any], key: str) -> list[str]:
    return [address["targetRef"]["name"] for address in subset.get(key, [])]


def test_ready_and_unready_addresses_are_told_apart_and_those_going_left_out(world: World) -> None:
    world.service(metadata={"labels": {"team": "shop"}})
    world.pod("a", "10.244.1.2")
    world.pod("b", "10.244.1.3", ready=False)
    world.pod("c", "10.244.1.4", metadata={"deletionTimestamp": "2023-11-14T22:00:00Z"})
    world.pod("d", "10.244.1.5", status={"phase": "Failed"})
    world.settle()
    (subset,) = document(world)["subsets"]
    assert (named(subset, "addresses"), named(subset, "notReadyAddresses")) == (["a"], ["b"])
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert subset["addresses"][0]["nodeName"] == "node-1"
    assert document(world)["metadata"]["labels"] == {
        "team": "shop",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    }


def test_publishing_makes_all_of_them_ready(world: World) -> None:
    world.service(publishNotReadyAddresses=True)
    world.pod("b", "10.244.1.3", ready=False)
    world.pod("c", "10.244.1.4", metadata={"deletionTimestamp": "2023-11-14T22:00:00Z"})
    world.settle()
    assert named(document(world)["subsets"][0], "addresses") == ["b", "c"]


def test_pods_with_other_ports_are_of_another_subset(world: World) -> None:
    world.service(ports=[{"port": 80, "targetPort": "http", "protocol": "TCP"}])
    for name, number in (("a", 1), ("b", 2)):
        ports = [{"name": "http", "containerPort": number}]
        world.pod(name, f"10.244.1.{number}", spec={"containers": [{"name": "c", "ports": ports}]})
    world.pod("c", "10.244.1.3")
    world.settle()
    assert [(s["ports"][0]["port"], named(s, "addresses")) for s in document(world)["subsets"]] == [
        (1, ["a"]),
        (2, ["b"]),
    ]


def test_a_change_is_one_update_and_no_change_is_none(world: World) -> None:
    world.service()
    world.pod("a", "10.244.1.2")
    assert Create in [type(write) for write in world.settle()]
    world.pod("a", "10.244.1.2", ready=False)
    assert [type(write) for write in world.settle()] == [Update]
    world.pod("a", "10.244.1.2", ready=False, metadata={"annotations": {"x": "y"}})
    assert world.settle() == []


def test_a_headless_service_without_ports_has_addresses_without_ports(world: World) -> None:
    world.service(clusterIP="None", ports=[])
    world.pod("a", "10.244.1.2")
    world.settle()
    (subset,) = document(world)["subsets"]
    assert (named(subset, "addresses"), subset["ports"]) == (["a"], [])
    assert document(world)["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_what_has_no_room_is_left_out_and_that_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 2)
    world.service()
    world.pod("a", "10.244.1.2", ready=False)
    world.pod("b", "10.244.1.3")
    world.pod("c", "10.244.1.4")
    world.settle()
    assert named(document(world)["subsets"][0], "addresses") == ["b", "c"]
    assert document(world)["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"] == "truncated"


def test_endpoints_made_by_hand_are_left_alone(world: World) -> None:
    world.service(selector=None)
    world.put(ENDPOINTS, {"metadata": {"name": "web", "namespace": "default"}, "subsets": []})
    assert world.settle() == []
    world.remove(SERVICES, "default", "web")
    assert world.settle() == []


def test_ours_goes_with_its_service(world: World) -> None:
    world.service()
    world.settle()
    world.remove(SERVICES, "default", "web")
    (write,) = world.settle()
    assert isinstance(write, Delete)
    assert world.all(Endpoints) == []
