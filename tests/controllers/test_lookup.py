from hypothesis import given
from hypothesis import strategies as st
from tests.controllers.world import World

from clusterip.controllers.lookup import carries
from clusterip.model.objects import Pod, Service
from clusterip.model.resources import PODS, SERVICES

LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from("123"), LABELS, st.sampled_from(["", "node-1", "node-2"])),
        st.tuples(st.just("service"), st.sampled_from("123"), st.none() | LABELS, st.just("")),
        st.tuples(st.sampled_from(["no pod", "no service"]), st.sampled_from("123"), st.just({}), st.just("")),
    ),
    max_size=20,
)


@given(STEPS)
def test_the_ways_lead_where_a_walk_over_everything_would(
    steps: list[tuple[str, str, dict[str, str] | None, str]],
) -> None:
    world = World()
    for act, name, labels, node in steps:
        match act:
            case "pod":
                world.put(
                    PODS,
                    {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {"nodeName": node}},
                )
            case "service":
                world.service(name, selector=labels)
            case "no pod" if (PODS, "default", name) in world.documents:
                world.remove(PODS, "default", name)
            case "no service" if (SERVICES, "default", name) in world.documents:
                world.remove(SERVICES, "default", name)
        _agree(world)
    for resource, namespace, name in list(world.documents):
        world.remove(resource, namespace, name)
    lookup = world.lookup
    assert not any((lookup._pods, lookup._services, lookup._filed, lookup._on_node, lookup._dependents))


def _agree(world: World) -> None:
    pods, services = world.all(Pod), world.all(Service)
    for service in services:
        if service.spec.selector is None:
            continue
        found = {pod.metadata.name for pod in world.lookup.pods_selected("default", service.spec.selector)}
        assert found == {pod.metadata.name for pod in pods if carries(pod.metadata.labels, service.spec.selector)}
    for pod in pods:
        selecting = list(world.lookup.services_selecting(pod))
        assert len(selecting) == len(set(selecting))
        assert set(selecting) == {
            s.metadata.name
            for s in services
            if s.spec.selector is not None and carries(pod.metadata.labels, s.spec.selector)
        }
    for node in ("node-1", "node-2"):
        on_it = {pod.metadata.name for pod in world.lookup.pods_on(node)}
        assert on_it == {pod.metadata.name for pod in pods if pod.spec.node_name == node}
