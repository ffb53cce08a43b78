from clusterip.client.view import SERVICE_NAME, Ref, View, ref
from clusterip.model.objects import EndpointSlice, Node, ObjectMeta, Pod


def slice_of(name: str, service: str, namespace: str = "default") -> EndpointSlice:
    labels = {SERVICE_NAME: service} if service else {}
    return EndpointSlice(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


def test_objects_are_found_by_kind_namespace_and_name() -> None:
    view = View()
    pod = Pod(metadata=ObjectMeta(name="web", namespace="a"))
    view.put(pod)
    view.put(Node(metadata=ObjectMeta(name="web")))
    assert view.get(Pod, "a", "web") is pod
    assert view.get(Pod, "b", "web") is None
    assert ref(pod) == Ref("Pod", "a", "web")
    assert [n.metadata.name for n in view.list(Node)] == ["web"]
    assert repr(view) == "View(Node=1 Pod=1)"


def test_a_list_is_of_one_namespace_or_of_all() -> None:
    view = View()
    for namespace, name in (("a", "x"), ("a", "y"), ("b", "x")):
        view.put(Pod(metadata=ObjectMeta(name=name, namespace=namespace)))
    assert len(list(view.list(Pod))) == 3
    assert {p.metadata.name for p in view.list(Pod, "a")} == {"x", "y"}
    assert list(view.list(Pod, "c")) == []


def test_slices_follow_their_label() -> None:
    view = View()
    view.put(slice_of("s2", "web"))
    view.put(slice_of("s1", "web"))
    view.put(slice_of("s3", "web", "other"))
    view.put(slice_of("bare", ""))
    assert [s.metadata.name for s in view.slices("default", "web")] == ["s1", "s2"]
    view.put(slice_of("s1", "api"))
    assert [s.metadata.name for s in view.slices("default", "web")] == ["s2"]
    assert [s.metadata.name for s in view.slices("default", "api")] == ["s1"]
    view.remove(EndpointSlice, "default", "s2")
    assert view.slices("default", "web") == ()
    assert view.remove(EndpointSlice, "default", "s2") is None
