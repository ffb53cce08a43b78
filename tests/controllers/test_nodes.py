from tests.controllers.world import NOW, World

from clusterip.controllers.endpointslice.controller import EndpointSlices
from clusterip.controllers.nodes import LostPods, NodeLifecycle
from clusterip.controllers.writes import Delete, Key
from clusterip.model.objects import EndpointSlice, Node, Pod
from clusterip.model.resources import LEASES, NODES


def renew(world: World, moment: str) -> None:
    world.put(LEASES, {"metadata": {"name": "node-1", "namespace": "kube-node-lease"}, "spec": {"renewTime": moment}})


def later(world: World, seconds: float) -> None:
    """Time passes, and what asked for it is planned again."""
    world.now += seconds
    for controller in world.controllers:
        if isinstance(controller, NodeLifecycle):
            world.due(controller, Key("", "node-1"))
    world.settle()


def status(world: World) -> str:
    return next(c.status for c in world.all(Node)[0].status.conditions if c.type == "Ready")


def test_a_node_that_renews_its_lease_stays_ready() -> None:
    world = World().follow(NodeLifecycle())
    world.node("node-1")
    for second in range(0, 120, 10):
        renew(world, f"2023-11-14T22:{13 + second // 60}:{second % 60:02}Z")
        later(world, 10)
    assert status(world) == "True"


def test_a_silent_node_is_unknown_after_its_time_and_its_pods_are_not_ready() -> None:
    world = World().follow(NodeLifecycle(), EndpointSlices())
    world.node("node-1")
    world.service()
    world.pod("a", "10.244.1.2")
    renew(world, "2023-11-14T22:13:00Z")
    world.settle()
    later(world, 39)
    assert status(world) == "True"
    later(world, 2)
    assert status(world) == "Unknown"
    (slice_,) = world.all(EndpointSlice)
    assert [e.conditions.ready for e in slice_.endpoints or ()] == [False]
    world.pod("b", "10.244.1.3")
    world.settle()
    assert not any(c.status == "True" for pod in world.all(Pod) for c in pod.status.conditions)


def test_the_wait_is_as_long_as_the_rest_of_the_time() -> None:
    world = World()
    world.node("node-1")
    controller = NodeLifecycle()
    assert controller.plan(world.lookup, Key("", "node-1"), NOW).again_after == 40.01
    assert controller.plan(world.lookup, Key("", "node-1"), NOW + 15).again_after == 25.01


def test_pods_of_a_node_that_is_gone_are_ended_by_force() -> None:
    world = World().follow(LostPods())
    world.node("node-1")
    world.pod("a", "10.244.1.2")
    assert world.settle() == []
    world.remove(NODES, "", "node-1")
    (write,) = world.settle()
    assert isinstance(write, Delete)
    assert write.grace_seconds == 0
    assert [owner.name for owner in write.unless] == ["node-1"]
    assert world.all(Pod) == []
