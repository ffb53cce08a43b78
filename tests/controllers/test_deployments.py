from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.fake_apiserver import merged
from tests.controllers.world import World
from tests.examples import share

from clusterip.controllers.deployment.controller import Deployments
from clusterip.controllers.deployment.limits import max_surge, max_unavailable
from clusterip.controllers.deployment.sets import HISTORY, REVISION
from clusterip.controllers.replicaset import ReplicaSets
from clusterip.model.objects import (
    Deployment,
    DeploymentSpec,
    DeploymentStrategy,
    Event,
    Pod,
    ReplicaSet,
    RollingUpdate,
)
from clusterip.model.resources import DEPLOYMENTS, PODS
from clusterip.model.status import Object


@pytest.fixture
def world() -> World:
    return make()


def make() -> World:
    world = World().follow(Deployments(), ReplicaSets())
    world.node("node-1")
    return world


def put(world: World, replicas: int = 3, image: str = "v1", **over: Any) -> None:
    document = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    }
    held = world.documents.get((DEPLOYMENTS, "default", "web"), {})
    world.put(DEPLOYMENTS, merged({**held, **document, "metadata": held.get("metadata", document["metadata"])}, over))


def make_ready(world: World, most: int = 1000) -> int:
    """Lets up to `most` pods become ready, as a node would; returns how many did."""
    found = [
        pod
        for pod in world.all(Pod)
        if not any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    ][:most]
    for pod in found:
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:00Z"}
        world.patch(PODS, "default", pod.metadata.name, {"status": {"phase": "Running", "conditions": [condition]}})
    return len(found)


def roll_out(world: World, most: int = 1000) -> Iterator[None]:
    """Yields after each step, until nothing happens any more."""
    world.settle()
    yield
    while make_ready(world, most):
        world.settle()
        yield


def images(world: World) -> list[str]:
    return sorted(
        world.documents[PODS, "default", p.metadata.name]["spec"]["containers"][0]["image"] for p in world.all(Pod)
    )


def the(world: World) -> Deployment:
    (found,) = world.all(Deployment)
    return found


def condition(world: World, kind: str) -> tuple[str, str]:
    return next((c.status, c.reason) for c in the(world).status.conditions if c.type == kind)


def sets(world: World) -> dict[str, int]:
    """Image -> replicas of its ReplicaSet."""
    found = {}
    for (_, _, _), document in world.documents.items():
        if "template" in document.get("spec", {}) and "ownerReferences" in document["metadata"]:
            found[document["spec"]["template"]["spec"]["containers"][0]["image"]] = document["spec"]["replicas"]
    return found


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (4, "25%", "25%", (1, 1)),
        (3, "25%", "25%", (1, 0)),
        (10, "25%", "25%", (3, 2)),
        (10, 2, 0, (2, 0)),
        (5, 0, 0, (0, 1)),
        (5, "0%", "10%", (0, 1)),
        (1, "25%", "25%", (1, 0)),
        (0, "25%", "25%", (0, 0)),
        (2, 0, 5, (0, 2)),
    ],
)
def test_percentages_are_rounded_up_for_the_surge_and_down_for_what_may_be_missing(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    rolling = RollingUpdate(max_surge=surge, max_unavailable=unavailable)
    deployment = Deployment(spec=DeploymentSpec(replicas=replicas, strategy=DeploymentStrategy(rolling_update=rolling)))
    assert (max_surge(deployment), max_unavailable(deployment)) == expected


def test_a_deployment_makes_a_replica_set_and_tells_how_it_goes(world: World) -> None:
    put(world)
    world.settle()
    assert condition(world, "Available") == ("False", "MinimumReplicasUnavailable")
    assert condition(world, "Progressing")[0] == "True"
    list(roll_out(world))
    (rs,) = world.all(ReplicaSet)
    digest = rs.metadata.labels["pod-template-hash"]
    assert rs.metadata.name == f"web-{digest}"
    assert rs.spec.selector.match_labels == {"app": "web", "pod-template-hash": digest}
    assert rs.metadata.annotations[REVISION] == the(world).metadata.annotations[REVISION] == "1"
    status = the(world).status
    assert (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas) == (3, 3, 3, 3)
    assert condition(world, "Available") == ("True", "MinimumReplicasAvailable")
    assert condition(world, "Progressing") == ("True", "NewReplicaSetAvailable")
    assert [event.reason for event in world.all(Event)] == ["ScalingReplicaSet"]


def test_a_new_template_is_rolled_out_within_the_limits(world: World) -> None:
    put(world, 4)
    list(roll_out(world))
    put(world, 4, "v2")
    for _ in roll_out(world, most=1):
        assert len(world.all(Pod)) <= 5
        ready = [p for p in world.all(Pod) if p.status.conditions]
        assert len(ready) >= 3
    assert images(world) == ["v2"] * 4
    assert the(world).metadata.annotations[REVISION] == "2"
    assert condition(world, "Progressing") == ("True", "NewReplicaSetAvailable")


def test_going_back_takes_the_old_replica_set_and_a_new_revision(world: World) -> None:
    for image in ("v1", "v2", "v1"):
        put(world, 2, image)
        list(roll_out(world))
    assert len(world.all(ReplicaSet)) == 2
    assert images(world) == ["v1", "v1"]
    (back,) = [rs for rs in world.all(ReplicaSet) if rs.spec.replicas]
    assert back.metadata.annotations[REVISION] == "3"
    assert back.metadata.annotations[HISTORY] == "1"


def test_a_template_that_never_gets_ready_stops_at_the_limit_and_is_told_after_the_deadline(world: World) -> None:
    put(world, 4)
    list(roll_out(world))
    put(world, 4, "broken", spec={"progressDeadlineSeconds": 60})
    world.settle()
    assert sets(world) == {"v1": 3, "broken": 2}
    assert condition(world, "Progressing") == ("True", "ReplicaSetUpdated")
    controller = Deployments()
    again = controller.plan(world.lookup, next(iter(world_keys(world))), world.now).again_after
    assert again is not None
    assert 60 <= again <= 61
    world.now += 61
    world.patch(DEPLOYMENTS, "default", "web", {"metadata": {"labels": {"touch": "me"}}})
    world.settle()
    assert condition(world, "Progressing") == ("False", "ProgressDeadlineExceeded")
    put(world, 4, "v3")
    list(roll_out(world))
    assert images(world) == ["v3"] * 4


def world_keys(world: World) -> Any:
    from clusterip.controllers.writes import Key

    return [Key("default", "web")]


def test_recreate_ends_all_old_pods_before_it_makes_new_ones(world: World) -> None:
    put(world, 2, spec={"strategy": {"type": "Recreate"}})
    list(roll_out(world))
    old = world.all(Pod)
    for pod in old:
        world.patch(PODS, "default", pod.metadata.name, {"metadata": {"finalizers": ["test/slow"]}})
    put(world, 2, "v2", spec={"strategy": {"type": "Recreate"}})
    world.settle()
    assert images(world) == ["v1", "v1"]
    for pod in old:
        world.remove(PODS, "default", pod.metadata.name)
    list(roll_out(world))
    assert images(world) == ["v2", "v2"]


def test_a_paused_deployment_is_scaled_but_not_rolled_out(world: World) -> None:
    put(world, 2)
    list(roll_out(world))
    put(world, 3, "v2", spec={"paused": True})
    list(roll_out(world))
    assert images(world) == ["v1"] * 3
    assert condition(world, "Progressing") == ("Unknown", "DeploymentPaused")
    put(world, 3, "v2", spec={"paused": None})
    list(roll_out(world))
    assert images(world) == ["v2"] * 3


def test_scaling_in_the_middle_of_a_rollout_gives_each_its_part(world: World) -> None:
    put(world, 10)
    list(roll_out(world))
    put(world, 10, "v2")
    world.settle()
    before = sets(world)
    assert sum(before.values()) == 13
    put(world, 20, "v2")
    world.settle()
    after = sets(world)
    assert after["v1"] > before["v1"]
    assert after["v2"] > before["v2"]
    list(roll_out(world))
    assert images(world) == ["v2"] * 20


def test_history_is_kept_up_to_its_limit(world: World) -> None:
    for number in range(5):
        put(world, 1, f"v{number}", spec={"revisionHistoryLimit": 2})
        list(roll_out(world))
    assert sorted(sets(world)) == ["v2", "v3", "v4"]


def test_annotations_travel_to_the_replica_set_but_not_those_of_kubectl(world: World) -> None:
    put(
        world,
        1,
        metadata={
            "annotations": {
                "kubernetes.io/change-cause": "why",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            }
        },
    )
    list(roll_out(world))
    (rs,) = world.all(ReplicaSet)
    assert rs.metadata.annotations["kubernetes.io/change-cause"] == "why"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in rs.metadata.annotations


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("roll"), st.sampled_from(["v1", "v2", "v3"])),
        st.tuples(st.just("scale"), st.integers(0, 6)),
        st.tuples(st.just("ready"), st.integers(1, 3)),
        st.tuples(st.just("kill"), st.integers(0, 5)),
    ),
    max_size=12,
)


@settings(max_examples=share(30))
@given(STEPS, st.sampled_from([(1, 0), (0, 1), ("25%", "25%"), (3, 2)]))
def test_whatever_happens_in_between_the_end_is_what_was_asked_for(
    steps: list[tuple[str, Any]], limits: tuple[int | str, int | str]
) -> None:
    world, replicas, image = make(), 3, "v1"
    strategy: Object = {"rollingUpdate": {"maxSurge": limits[0], "maxUnavailable": limits[1]}}
    put(world, replicas, image, spec={"strategy": strategy})
    world.settle()
    for act, value in steps:
        match act:
            case "roll" | "scale":
                image, replicas = (value, replicas) if act == "roll" else (image, value)
                put(world, replicas, image, spec={"strategy": strategy})
            case "ready":
                make_ready(world, value)
            case "kill":
                pods = world.all(Pod)
                if value < len(pods):
                    world.remove(PODS, "default", pods[value].metadata.name)
        world.settle(500)
    list(roll_out(world))
    assert images(world) == [image] * replicas
    assert condition(world, "Progressing") == ("True", "NewReplicaSetAvailable")
    assert the(world).status.replicas == replicas
