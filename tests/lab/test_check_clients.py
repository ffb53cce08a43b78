"""Who tries."""

from clusterip.lab.check.clients import clients, witnesses
from clusterip.lab.check.plan import World
from clusterip.lab.check.values import ClientKind
from clusterip.lab.plan import Plan
from clusterip.model.objects import Endpoint, EndpointSlice, ObjectMeta, ObjectReference, Pod, PodSpec, PodStatus


def pod(name: str, node: str = "node-1", *, phase: str = "Running", host: bool = False, leaving: bool = False) -> Pod:
    gone = "2026-01-01T00:00:00Z" if leaving else None
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"{name}-0000", deletion_timestamp=gone),
        spec=PodSpec(node_name=node, host_network=host),
        status=PodStatus(phase=phase, pod_ip="10.244.1.5"),
    )


def behind(name: str) -> EndpointSlice:
    ref = ObjectReference(kind="Pod", namespace="default", name=name)
    return EndpointSlice(metadata=ObjectMeta(name="web-x"), endpoints=(Endpoint(target_ref=ref),))


def chosen(*pods: Pod, slices: tuple[EndpointSlice, ...] = ()) -> dict[str, str]:
    return {node: found.metadata.name for node, found in witnesses(World(pods=pods, slices=slices)).items()}


def test_one_running_pod_a_node_is_a_witness() -> None:
    assert chosen(pod("b"), pod("a"), pod("c", "node-2")) == {"node-1": "a", "node-2": "c"}


def test_a_pod_behind_a_service_is_none() -> None:
    assert chosen(pod("a"), pod("b"), slices=(behind("a"),)) == {"node-1": "b"}
    assert chosen(pod("a"), slices=(behind("a"),)) == {}


def test_pods_that_do_not_run_leave_or_share_the_nodes_network_are_none() -> None:
    assert chosen(pod("a", phase="Pending"), pod("b", host=True), pod("c", leaving=True)) == {}


def test_columns_are_nodes_then_their_pods_then_the_host_if_it_has_access() -> None:
    plan = Plan(name="lab", nodes=2, host_access=True)
    found = clients(plan, {"node-2": pod("two", "node-2"), "node-1": pod("one")})
    assert [(client.name, client.kind, client.node) for client in found] == [
        ("node-1", ClientKind.NODE, "node-1"),
        ("node-2", ClientKind.NODE, "node-2"),
        ("pod default/one", ClientKind.POD, "node-1"),
        ("pod default/two", ClientKind.POD, "node-2"),
        ("host", ClientKind.HOST, "node-1"),
    ]
    assert found[0].netns == "lab.node-1"
    assert found[2].netns.startswith("lab.pod-default-one-")
    assert found[4].netns == ""


def test_without_host_access_the_host_does_not_try() -> None:
    assert {client.kind for client in clients(Plan(name="lab", nodes=1), {})} == {ClientKind.NODE}
