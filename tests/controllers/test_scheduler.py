from collections import Counter
from typing import Any

import pytest
from tests.controllers.world import World

from clusterip.controllers.scheduler import Scheduler
from clusterip.controllers.writes import Bind, Create, Patch
from clusterip.model.objects import Event, Pod
from clusterip.model.resources import NODES, PODS


@pytest.fixture
def world() -> World:
    return World().follow(Scheduler())


def waiting(world: World, name: str, owner: str = "", **spec: Any) -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    world.put(
        PODS,
        {
            "metadata": {"name": name, "namespace": "default", **({"ownerReferences": owners} if owner else {})},
            "spec": {"containers": [{"name": "c"}], **spec},
        },
    )


def placed(world: World) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in world.all(Pod)}


def test_replicas_spread_over_nodes_in_one_round(world: World) -> None:
    for name in ("node-1", "node-2", "node-3"):
        world.node(name)
    for number in range(2):
        world.pod(f"system-{number}", "10.244.1.2")
    for number in range(6):
        waiting(world, f"p{number}", "web")
    writes = world.settle()
    assert [type(write) for write in writes[:6]] == [Bind] * 6
    spread = Counter(node for pod, node in placed(world).items() if pod.startswith("p"))
    assert set(spread.values()) == {2}


def test_a_pod_without_owner_goes_where_the_fewest_pods_are(world: World) -> None:
    world.node("node-1")
    world.node("node-2")
    world.pod("a", "10.244.1.2")
    waiting(world, "b")
    world.settle()
    assert placed(world)["b"] == "node-2"
    assert [event.reason for event in world.all(Event)] == ["Scheduled"]


@pytest.mark.parametrize(
    ("node", "pod", "reason"),
    [
        ({"unschedulable": True}, {}, "unschedulable"),
        ({"ready": False}, {}, "not ready"),
        ({}, {"nodeSelector": {"disk": "ssd"}}, "nodeSelector"),
        ({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, {}, "taint {gpu: yes}"),
        ({"taints": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}, {}, "taint {gpu: yes}"),
    ],
)
def test_a_node_that_cannot_take_the_pod_is_passed_over_and_the_reason_told_once(
    world: World, node: dict[str, Any], pod: dict[str, Any], reason: str
) -> None:
    world.node("node-1", **node)
    waiting(world, "a", **pod)
    patch, told = world.settle()
    assert isinstance(patch, Patch)
    assert isinstance(told, Create)
    assert told.object["reason"] == "FailedScheduling"
    assert reason in told.object["message"]
    assert told.object["message"].startswith("0/1 nodes are available")
    condition = world.all(Pod)[0].status.conditions[0]
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")
    world.node("node-1", **node)
    assert world.settle() == []
    world.node("node-2")
    world.patch(NODES, "", "node-2", {"metadata": {"labels": {"disk": "ssd"}}})
    world.settle()
    assert placed(world) == {"a": "node-2"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_toleration_opens_a_tainted_node(world: World, toleration: dict[str, str], fits: bool) -> None:
    world.node("node-1", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    waiting(world, "a", tolerations=[toleration])
    world.settle()
    assert placed(world) == {"a": "node-1" if fits else ""}


def test_pods_of_other_schedulers_and_those_going_are_left_alone(world: World) -> None:
    world.node("node-1")
    waiting(world, "a", schedulerName="mine")
    world.put(PODS, {"metadata": {"name": "b", "namespace": "default", "deletionTimestamp": "2023-11-14T22:00:00Z"}})
    assert world.settle() == []


def test_pods_wait_for_the_first_node(world: World) -> None:
    waiting(world, "a")
    world.settle()
    world.node("node-1", ready=False)
    world.settle()
    world.node("node-1")
    world.settle()
    assert placed(world) == {"a": "node-1"}
