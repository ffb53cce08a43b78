import msgspec
import pytest
from tests.controllers.world import TYPES, World

from clusterip.client.view import Change, Ref
from clusterip.controllers.garbage import FOREGROUND, ORPHAN, Garbage
from clusterip.controllers.writes import Delete
from clusterip.model.objects import ConfigMap, Pod
from clusterip.model.resources import CONFIG_MAPS, PODS, SERVICES
from clusterip.model.status import Object


@pytest.fixture
def world() -> World:
    return World().follow(Garbage(TYPES))


def put(world: World, name: str, *owners: Object, finalizers: tuple[str, ...] = (), going: bool = False) -> Object:
    """A ConfigMap; owned by others of them."""
    meta: Object = {"name": name, "namespace": "default", "ownerReferences": list(owners)}
    if finalizers:
        meta["finalizers"] = list(finalizers)
    if going:
        meta["deletionTimestamp"] = "2023-11-14T22:00:00Z"
    held = world.documents.get((CONFIG_MAPS, "default", name))
    if held:
        meta["uid"] = held["metadata"]["uid"]
    return world.put(CONFIG_MAPS, {"metadata": meta})


def by(owner: Object, *, block: bool = True) -> Object:
    meta = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": meta["name"],
        "uid": meta["uid"],
        "blockOwnerDeletion": block,
    }


def left(world: World) -> list[str]:
    return [value.metadata.name for value in world.all(ConfigMap)]


def test_what_is_owned_goes_when_its_owner_has_gone_down_the_line(world: World) -> None:
    a = put(world, "a")
    b = put(world, "b", by(a))
    put(world, "c", by(b))
    put(world, "free")
    assert world.settle() == []
    world.remove(CONFIG_MAPS, "default", "a")
    writes = world.settle()
    assert left(world) == ["free"]
    assert isinstance(writes[0], Delete)
    assert [owner.name for owner in writes[0].unless] == ["a"], "the server is asked whether the owner is really gone"


def test_what_has_another_owner_stays_and_forgets_the_one_that_went(world: World) -> None:
    a, b = put(world, "a"), put(world, "b")
    put(world, "c", by(a), by(b))
    world.remove(CONFIG_MAPS, "default", "a")
    world.settle()
    assert left(world) == ["b", "c"]
    assert [owner.name for owner in world.all(ConfigMap)[1].metadata.owner_references] == ["b"]


def test_another_object_of_the_owners_name_is_not_the_owner(world: World) -> None:
    a = put(world, "a")
    put(world, "c", by(a))
    world.remove(CONFIG_MAPS, "default", "a")
    put(world, "a")
    world.settle()
    assert left(world) == ["a"]


def test_an_owner_of_a_kind_that_is_not_followed_counts_as_there(world: World) -> None:
    put(world, "c", {"apiVersion": "example.org/v1", "kind": "Thing", "name": "x", "uid": "x"})
    assert world.settle() == []


def test_in_the_foreground_dependents_go_first(world: World) -> None:
    a = put(world, "a")
    put(world, "b", by(a), finalizers=("test/slow",))
    world.settle()
    put(world, "a", finalizers=(FOREGROUND,), going=True)
    world.settle()
    assert left(world) == ["a", "b"], "b is still on its way"
    assert world.all(ConfigMap)[1].metadata.deletion_timestamp
    world.patch(CONFIG_MAPS, "default", "b", {"metadata": {"finalizers": []}})
    world.remove(CONFIG_MAPS, "default", "b")
    world.settle()
    assert left(world) == []


def test_a_dependent_that_does_not_block_does_not_hold_the_owner(world: World) -> None:
    a = put(world, "a")
    put(world, "b", by(a, block=False), finalizers=("test/slow",))
    put(world, "a", finalizers=(FOREGROUND,), going=True)
    world.settle()
    assert left(world) == ["b"]


def test_the_foreground_goes_down_the_line(world: World) -> None:
    a = put(world, "a")
    b = put(world, "b", by(a))
    put(world, "c", by(b))
    put(world, "a", finalizers=(FOREGROUND,), going=True)
    world.settle()
    assert left(world) == []


def test_orphans_stay_and_forget_their_owner(world: World) -> None:
    a = put(world, "a")
    put(world, "b", by(a))
    put(world, "a", finalizers=(ORPHAN,), going=True)
    world.settle()
    assert left(world) == ["b"]
    assert world.all(ConfigMap)[0].metadata.owner_references == ()


def test_most_objects_cost_no_round(world: World) -> None:
    controller = Garbage(TYPES)
    service = world.put(SERVICES, {"metadata": {"name": "web", "namespace": "default"}})
    owner = {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": service["metadata"]["uid"]}
    world.put(PODS, {"metadata": {"name": "p", "namespace": "default", "ownerReferences": [owner]}})
    (pod,) = world.all(Pod)
    changed = Change(msgspec.structs.replace(pod), pod)
    assert list(controller.keys(Ref("Pod", "default", "p"), changed, world.lookup)) == []
