import pytest
from tests.controllers.world import World

from clusterip.controllers.mirroring import Mirroring
from clusterip.controllers.writes import Delete, Update
from clusterip.model.objects import EndpointSlice, Event
from clusterip.model.resources import ENDPOINT_SLICES, ENDPOINTS
from clusterip.model.status import Object

PORTS = [{"name": "http", "port": 8080, "protocol": "TCP"}]


@pytest.fixture
def world() -> World:
    made = World().follow(Mirroring())
    made.service(selector=None)
    return made


def put(world: World, *subsets: Object, **meta: object) -> None:
    held = world.documents.get((ENDPOINTS, "default", "web"), {"metadata": {}})["metadata"]
    world.put(
        ENDPOINTS, {"metadata": {**held, "name": "web", "namespace": "default", **meta}, "subsets": list(subsets)}
    )


def subset(*ready: str, unready: tuple[str, ...] = (), ports: list[Object] | None = None) -> Object:
    return {
        "addresses": [{"ip": ip} for ip in ready],
        "notReadyAddresses": [{"ip": ip} for ip in unready],
        "ports": PORTS if ports is None else ports,
    }


def mirrored(world: World) -> dict[str, list[tuple[str, bool | None]]]:
    found: dict[str, list[tuple[str, bool | None]]] = {}
    for slice_ in world.all(EndpointSlice):
        pairs = [(e.addresses[0], e.conditions.ready) for e in slice_.endpoints or ()]
        found.setdefault(slice_.address_type, []).extend(pairs)
    return {family: sorted(pairs) for family, pairs in found.items()}


def test_addresses_are_mirrored_by_family_with_only_ready_said(world: World) -> None:
    put(
        world,
        subset("192.0.2.1", "2001:DB8:0::1", unready=("192.0.2.2",)),
        labels={"a": "b"},
        annotations={
            "c": "d",
            "endpoints.kubernetes.io/last-change-trigger-time": "x",
            "kubectl.kubernetes.io/last-applied-configuration": "y",
        },
    )
    world.settle()
    assert mirrored(world) == {"IPv4": [("192.0.2.1", True), ("192.0.2.2", False)], "IPv6": [("2001:db8::1", True)]}
    for slice_ in world.all(EndpointSlice):
        document = world.documents[ENDPOINT_SLICES, "default", slice_.metadata.name]
        assert all(set(endpoint["conditions"]) == {"ready"} for endpoint in document["endpoints"])
        assert document["metadata"]["annotations"] == {"c": "d"}
        assert document["metadata"]["labels"] == {
            "a": "b",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        }
        assert document["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"


def test_a_change_of_an_address_is_an_update_and_the_end_of_all_a_deletion(world: World) -> None:
    put(world, subset("192.0.2.1"))
    world.settle()
    put(world, subset("192.0.2.9"))
    (write,) = world.settle()
    assert isinstance(write, Update)
    assert mirrored(world) == {"IPv4": [("192.0.2.9", True)]}
    world.remove(ENDPOINTS, "default", "web")
    (gone,) = world.settle()
    assert isinstance(gone, Delete)
    assert mirrored(world) == {}


def test_one_address_may_be_in_several_subsets(world: World) -> None:
    other = [{"name": "metrics", "port": 9090}]
    put(world, subset("192.0.2.1"), subset("192.0.2.1", ports=other))
    world.settle()
    assert sorted((s.ports or ())[0].port or 0 for s in world.all(EndpointSlice)) == [8080, 9090]


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
    ],
)
def test_those_that_ask_for_it_are_not_mirrored_any_more(world: World, meta: dict[str, object]) -> None:
    put(world, subset("192.0.2.1"))
    world.settle()
    put(world, subset("192.0.2.1"), **meta)
    world.settle()
    assert mirrored(world) == {}


def test_a_service_with_a_selector_has_slices_of_its_own(world: World) -> None:
    put(world, subset("192.0.2.1"))
    world.settle()
    world.service()
    world.settle()
    assert mirrored(world) == {}


def test_what_is_no_address_and_what_is_too_much_is_left_out_and_told_once(world: World) -> None:
    put(world, subset("ten", *(f"10.0.{n // 250}.{n % 250 + 1}" for n in range(1001))))
    world.settle()
    assert sum(len(s.endpoints or ()) for s in world.all(EndpointSlice)) == 999
    assert sorted(event.reason for event in world.all(Event)) == ["InvalidIPAddress", "TooManyAddressesToMirror"]
    world.service(selector=None, metadata={"labels": {"touch": "me"}})
    assert world.settle() == []
