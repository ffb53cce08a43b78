from tests.controllers.world import TYPES, World

from clusterip.controllers.namespaces import Namespaces
from clusterip.controllers.writes import Delete, Update
from clusterip.model.objects import ConfigMap, Namespace, Pod
from clusterip.model.resources import CONFIG_MAPS, NAMESPACES, PODS


def test_a_namespace_goes_after_all_that_is_in_it() -> None:
    world = World().follow(Namespaces(TYPES))
    for name in ("shop", "default"):
        world.put(NAMESPACES, {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}})
        world.put(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": name}})
        world.put(PODS, {"metadata": {"name": "p", "namespace": name, "finalizers": ["test/slow"]}})
    assert world.settle() == []
    world.patch(NAMESPACES, "", "shop", {"metadata": {"deletionTimestamp": "2023-11-14T22:00:00Z"}})
    writes = world.settle()
    assert sorted(write.name for write in writes if isinstance(write, Delete)) == ["c", "p"]
    assert len(world.all(Pod)) == 2
    assert len(world.all(Namespace)) == 2
    world.remove(PODS, "shop", "p")
    (write,) = world.settle()
    assert isinstance(write, Update)
    assert (write.subresource, write.object["spec"]) == ("finalize", {"finalizers": []})
    assert [value.metadata.namespace for value in world.all(ConfigMap)] == ["default"]
