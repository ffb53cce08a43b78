from typing import Any

import pytest
from tests.controllers.world import NOW, World

from clusterip.controllers.replicaset import ReplicaSets, deletion_order
from clusterip.controllers.writes import Create, Delete
from clusterip.model.objects import Pod, ReplicaSet
from clusterip.model.resources import PODS, REPLICA_SETS


@pytest.fixture
def world() -> World:
    made = World().follow(ReplicaSets())
    made.node("node-1")
    return made


def put(world: World, replicas: int, **spec: Any) -> None:
    document = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web", "more": "yes"}, "annotations": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "clusterip/echo", "unknown": {"kept": 1}}]},
            },
            **spec,
        },
    }
    held = world.documents.get((REPLICA_SETS, "default", "web"))
    world.put(REPLICA_SETS, {**held, "spec": document["spec"]} if held else document)


def the_set(world: World) -> ReplicaSet:
    (found,) = world.all(ReplicaSet)
    return found


def test_as_many_pods_as_asked_for_of_the_whole_template(world: World) -> None:
    put(world, 3)
    world.settle()
    assert len(world.all(Pod)) == 3
    document = world.documents[PODS, "default", world.all(Pod)[0].metadata.name]
    assert document["spec"]["containers"][0]["unknown"] == {"kept": 1}
    assert document["metadata"]["labels"] == {"app": "web", "more": "yes"}
    assert document["metadata"]["annotations"] == {"a": "b"}
    assert document["metadata"]["generateName"] == "web-"
    assert document["metadata"]["ownerReferences"][0]["controller"] is True
    status = world.documents[REPLICA_SETS, "default", "web"]["status"]
    assert status == {"replicas": 3, "fullyLabeledReplicas": 3, "observedGeneration": 1}


def test_scaling_down_ends_pods_and_zero_ends_all(world: World) -> None:
    put(world, 5)
    world.settle()
    put(world, 2)
    world.settle()
    assert len(world.all(Pod)) == 2
    put(world, 0)
    world.settle()
    assert world.all(Pod) == []
    assert the_set(world).status.replicas == 0


def test_a_deleted_or_ended_pod_is_replaced(world: World) -> None:
    put(world, 2)
    world.settle()
    first, second = world.all(Pod)
    world.remove(PODS, "default", first.metadata.name)
    world.patch(PODS, "default", second.metadata.name, {"status": {"phase": "Failed"}})
    world.settle()
    assert sum(pod.status.phase != "Failed" for pod in world.all(Pod)) == 2


def test_pods_without_controller_are_adopted_and_others_left_alone(world: World) -> None:
    world.pod("orphan", "10.244.1.2")
    world.pod(
        "foreign",
        "10.244.1.3",
        metadata={
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "other", "controller": True}
            ]
        },
    )
    put(world, 1)
    writes = world.settle()
    assert not any(isinstance(write, Create) for write in writes)
    owners = {pod.metadata.name: pod.metadata.owner_references[0].name for pod in world.all(Pod)}
    assert owners == {"orphan": "web", "foreign": "other"}


def test_a_pod_that_no_longer_matches_is_released_and_replaced(world: World) -> None:
    put(world, 1)
    world.settle()
    (pod,) = world.all(Pod)
    world.patch(PODS, "default", pod.metadata.name, {"metadata": {"labels": {"app": "debug"}}})
    world.settle()
    released = world.documents[PODS, "default", pod.metadata.name]
    assert released["metadata"]["ownerReferences"] == []
    assert len(world.all(Pod)) == 2


def test_a_set_on_its_way_out_makes_nothing(world: World) -> None:
    put(world, 1)
    world.settle()
    world.patch(
        REPLICA_SETS,
        "default",
        "web",
        {"metadata": {"deletionTimestamp": "2023-11-14T22:12:00Z", "finalizers": ["foregroundDeletion"]}},
    )
    world.remove(PODS, "default", world.all(Pod)[0].metadata.name)
    assert not [write for write in world.settle() if isinstance(write, Create | Delete)]


def test_a_ready_pod_is_available_only_after_min_ready_seconds(world: World) -> None:
    put(world, 1, minReadySeconds=10)
    world.settle()
    (pod,) = world.all(Pod)
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:18Z"}  # NOW - 2
    world.patch(PODS, "default", pod.metadata.name, {"status": {"phase": "Running", "conditions": [condition]}})
    world.settle()
    assert (the_set(world).status.ready_replicas, the_set(world).status.available_replicas) == (1, 0)
    (key,) = ReplicaSets().keys(*_change(world))
    assert ReplicaSets().plan(world.lookup, key, NOW).again_after == 8.0
    world.now = NOW + 8
    world.do(ReplicaSets().plan(world.lookup, key, world.now).writes)
    assert the_set(world).status.available_replicas == 1


def _change(world: World) -> Any:
    from clusterip.client.view import Change, ref

    return ref(the_set(world)), Change(None, the_set(world)), world.lookup


def test_the_least_useful_pods_go_first() -> None:
    world = World()
    ready = "2023-11-14T22:10:00Z"

    def pod(name: str, phase: str = "Running", *, is_ready: bool = True, **over: Any) -> None:
        conditions = [{"type": "Ready", "status": str(is_ready), "lastTransitionTime": over.pop("since", ready)}]
        world.pod(name, "10.244.1.2", **{"status": {"phase": phase, "conditions": conditions}, **over})

    pod("unassigned", spec={"nodeName": ""})
    pod("pending", "Pending")
    pod("unready", is_ready=False)
    pod("cheap", metadata={"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}})
    pod("crowded-1", spec={"nodeName": "node-2"})
    pod("crowded-2", spec={"nodeName": "node-2"}, since="2023-11-14T22:12:00Z")
    pod(
        "restarted",
        spec={"nodeName": "node-3"},
        status={
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready}],
            "containerStatuses": [{"name": "c", "restartCount": 3}],
        },
    )
    pod("young", spec={"nodeName": "node-4"}, metadata={"creationTimestamp": "2023-11-14T22:05:00Z"})
    pod("old", spec={"nodeName": "node-5"})
    order = [p.metadata.name for p in deletion_order(world.all(Pod))]
    assert order[:3] == ["unassigned", "pending", "unready"]
    assert order.index("cheap") == 3
    assert order.index("crowded-2") < order.index("crowded-1")
    assert order[-3:] == ["restarted", "young", "old"]
