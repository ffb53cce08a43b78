"""Services and what they are given: addresses and node ports, taken and given back in the commit that needs them.

Rows E1 to E9, E36 and E51 of the error table are the ones a test names.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.apiserver.serving import SERVICES, SETTINGS, Api, running, service, with_range

from clusterip.apiserver.repair import repair
from clusterip.apiserver.serve import Settings
from clusterip.apiserver.services import NODE_PORTS
from clusterip.store.base import Delete

IPS = "/apis/networking.k8s.io/v1/ipaddresses"


def address(obj: Any) -> str:
    return str(obj["spec"]["clusterIP"])


async def held(api: Api) -> set[str]:
    """Addresses by their objects, node ports by their keys, without the `kubernetes` Service's."""
    addresses = {item["metadata"]["name"] for item in (await api.ok("GET", IPS))["items"]}
    ports = (await api.parts.registry.store.list(NODE_PORTS)).items
    pools = api.parts.registry.services.pools
    assert sum(pool.used for pool in pools.addresses) == len(addresses), "memory and store agree"
    assert pools.ports.used == len(ports)
    return addresses - {"10.96.0.1"} | {item.key.removeprefix(NODE_PORTS) for item in ports}


async def test_a_service_gets_an_address_and_the_object_that_holds_it(api: Api) -> None:
    made = await api.ok("POST", SERVICES, service("a"))
    assert made["spec"]["clusterIPs"] == [address(made)]
    assert (made["spec"]["ipFamilies"], made["spec"]["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    ip = await api.ok("GET", f"{IPS}/{address(made)}")
    assert ip["spec"]["parentRef"] == {"group": "", "resource": "services", "namespace": "default", "name": "a"}
    assert ip["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io"
    assert ip["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"], "one commit"


async def test_fifty_at_once_get_fifty_addresses(api: Api) -> None:
    made = await asyncio.gather(*(api.ok("POST", SERVICES, service(f"n{n}", type="NodePort")) for n in range(50)))
    assert len({address(obj) for obj in made}) == 50
    assert len({obj["spec"]["ports"][0]["nodePort"] for obj in made}) == 50
    assert len(await held(api)) == 100


async def test_of_two_that_want_one_address_at_once_one_gets_it(api: Api) -> None:
    """E1, as a race."""
    wanted = [service(name, clusterIP="10.96.0.77") for name in ("a", "b")]
    replies = await asyncio.gather(*(api("POST", SERVICES, obj) for obj in wanted))
    assert sorted(reply.code for reply in replies) == [201, 422]
    assert await held(api) == {"10.96.0.77"}


@pytest.mark.parametrize(
    ("spec", "code", "field", "words"),
    [
        pytest.param({"clusterIP": "10.96.0.1"}, 422, "spec.clusterIPs", "already allocated", id="E1"),
        pytest.param({"clusterIP": "10.97.0.1"}, 422, "spec.clusterIPs", "does not match the current range", id="E2"),
        pytest.param({"clusterIP": "10.96.255.255"}, 422, "spec.clusterIPs", "is not in the valid range", id="E2b"),
        pytest.param(
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
            422, "spec.ports[0].nodePort", "provided port is already allocated", id="E5",
        ),
        pytest.param(
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
            422, "spec.ports[0].nodePort", "not in the valid range. The range of valid ports is 30000-32767", id="E6",
        ),
        pytest.param(
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30080},
            500, "", "failed to allocate requested HealthCheck NodePort", id="E8",
        ),
    ],
)  # fmt: skip
async def test_what_cannot_be_had_is_refused_and_holds_nothing(
    api: Api, spec: dict[str, Any], code: int, field: str, words: str
) -> None:
    await api.ok("POST", SERVICES, service("first", type="NodePort", ports=[{"port": 80, "nodePort": 30080}]))
    before = await held(api)
    status = await api.refused("POST", SERVICES, service("a", **spec))
    assert status["code"] == code
    assert words in status["message"]
    if field:
        assert status["reason"] == "Invalid"
        assert status["details"]["causes"][0]["field"] == field
    assert await held(api) == before


async def test_a_full_range_of_addresses_says_so() -> None:
    """E4; of 192.168.0.0/29 the `kubernetes` Service and five more get one."""
    async with running(with_range("192.168.0.0/29")) as api:
        for n in range(5):
            await api.ok("POST", SERVICES, service(f"n{n}"))
        status = await api.refused("POST", SERVICES, service("last"))
        assert (status["code"], status["reason"]) == (500, "InternalError")
        assert "failed to allocate a serviceIP" in status["message"]
        assert "range is full" in status["message"]
        await api.ok("DELETE", f"{SERVICES}/n3")
        await api.ok("POST", SERVICES, service("last"))


async def test_a_full_range_of_node_ports_says_so() -> None:
    """E7"""
    async with running(with_range("10.96.0.0/16", node_ports=(30000, 30001))) as api:
        for n in range(2):
            await api.ok("POST", SERVICES, service(f"n{n}", type="NodePort"))
        status = await api.refused("POST", SERVICES, service("last", type="NodePort"))
        assert status["code"] == 500
        assert "failed to allocate a nodePort: range is full" in status["message"]
        assert "10.96.0.1" not in await held(api)
        assert len(await held(api)) == 4


async def test_an_update_that_uses_a_node_port_twice_is_refused(api: Api) -> None:
    """E9"""
    made = await api.ok("POST", SERVICES, service("a", type="NodePort", ports=[{"name": "x", "port": 80}]))
    port = made["spec"]["ports"][0]["nodePort"]
    made["spec"]["ports"].append({"name": "y", "port": 81, "nodePort": port})
    status = await api.refused("PUT", f"{SERVICES}/a", made)
    assert status["code"] == 500
    assert "duplicate nodePort" in status["message"]


async def test_a_port_that_lacks_its_number_is_refused_before_it_takes_a_node_port(api: Api) -> None:
    status = await api.refused("POST", SERVICES, service("a", type="NodePort", ports=[{"nodePort": 30080}]))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535" in status["message"]
    await api.ok("POST", SERVICES, service("b", type="NodePort", ports=[{"port": 80, "nodePort": 30080}]))


async def test_a_family_that_does_not_exist_is_refused(api: Api) -> None:
    status = await api.refused("POST", SERVICES, service("a", ipFamilies=["IPv5"]))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert 'spec.ipFamilies[0]: Unsupported value: "IPv5"' in status["message"]


async def test_external_ips_can_be_denied() -> None:
    """E36"""
    denying: Settings = replace(SETTINGS, deny_external_ips=True)
    async with running(denying) as api:
        status = await api.refused("POST", SERVICES, service("a", externalIPs=["203.0.113.1"]))
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        assert "Use of external IPs is denied by admission control" in status["message"]
        await api.ok("POST", SERVICES, service("a"))


async def test_a_second_of_the_same_name_is_refused_and_gives_back_what_it_took(api: Api) -> None:
    """E51"""
    await api.ok("POST", SERVICES, service("a", type="NodePort"))
    before = await held(api)
    assert (await api.refused("POST", SERVICES, service("a", type="NodePort")))["reason"] == "AlreadyExists"
    assert await held(api) == before


async def test_a_deleted_service_gives_everything_back(api: Api) -> None:
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "clusterIP": "10.96.0.77"}
    made = await api.ok("POST", SERVICES, service("a", **spec))
    ports = {str(made["spec"]["ports"][0]["nodePort"]), str(made["spec"]["healthCheckNodePort"])}
    assert await held(api) == {"10.96.0.77", *ports}
    endpoints = {"metadata": {"name": "a"}, "subsets": []}
    await api.ok("POST", "/api/v1/namespaces/default/endpoints", endpoints)
    gone = await api.ok("DELETE", f"{SERVICES}/a")
    assert gone["metadata"]["name"] == "a"
    assert await held(api) == set()
    assert (await api("GET", "/api/v1/namespaces/default/endpoints/a")).code == 404
    assert address(await api.ok("POST", SERVICES, service("b", clusterIP="10.96.0.77"))) == "10.96.0.77"


async def test_the_address_stays_whatever_else_changes(api: Api) -> None:
    made = await api.ok("POST", SERVICES, service("a"))
    replaced = await api.ok("PUT", f"{SERVICES}/a", service("a", ports=[{"port": 8080}], selector={"app": "b"}))
    assert address(replaced) == address(made)
    status = await api.refused(
        "PATCH", f"{SERVICES}/a", {"spec": {"clusterIP": "10.96.0.99"}}, content_type="application/merge-patch+json"
    )
    assert status["code"] == 422
    assert await held(api) == {address(made)}


async def test_node_ports_come_and_go_with_the_type(api: Api) -> None:
    made = await api.ok("POST", SERVICES, service("a"))
    node_port = (await api.merge(f"{SERVICES}/a", {"spec": {"type": "NodePort"}}))["spec"]["ports"][0]["nodePort"]
    assert await held(api) == {address(made), str(node_port)}
    back = await api.merge(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}})
    assert "nodePort" not in back["spec"]["ports"][0]
    assert await held(api) == {address(made)}


async def test_an_external_name_has_no_address_and_gets_one_on_the_way_back(api: Api) -> None:
    await api.ok("POST", SERVICES, service("a"))
    named = await api.merge(f"{SERVICES}/a", {"spec": {"type": "ExternalName", "externalName": "example.com"}})
    assert "clusterIP" not in named["spec"]
    assert await held(api) == set()
    back = await api.merge(f"{SERVICES}/a", {"spec": {"type": "ClusterIP", "externalName": None}})
    assert await held(api) == {address(back)}


async def test_a_last_update_that_lets_go_gives_back_what_was_held(api: Api) -> None:
    obj = service("a", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    obj["metadata"]["finalizers"] = ["example.com/one"]
    await api.ok("POST", SERVICES, obj)
    await api.ok("DELETE", f"{SERVICES}/a")
    ports = [{"port": 80, "nodePort": 30081}]
    await api.ok("PUT", f"{SERVICES}/a", service("a", type="NodePort", ports=ports))
    assert (await api("GET", f"{SERVICES}/a")).code == 404
    assert await held(api) == set()


async def test_dry_run_reserves_nothing(api: Api) -> None:
    made = await api.ok("POST", f"{SERVICES}?dryRun=All", service("a", type="NodePort"))
    assert address(made).startswith("10.96.")
    assert await held(api) == set()
    await api.ok("POST", SERVICES, service("b"))
    before = await held(api)
    await api.ok("PUT", f"{SERVICES}/b?dryRun=All", service("b", type="NodePort"))
    await api.ok("DELETE", f"{SERVICES}/b?dryRun=All")
    assert await held(api) == before


async def test_a_collection_is_deleted_by_label_and_gives_back(api: Api) -> None:
    for name in ("a", "b", "c"):
        obj = service(name)
        obj["metadata"]["labels"] = {"kind": "x" if name != "c" else "y"}
        await api.ok("POST", SERVICES, obj)
    gone = await api.ok("DELETE", f"{SERVICES}?labelSelector=kind=x")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "b"]
    assert await held(api) == {address(await api.ok("GET", f"{SERVICES}/c"))}


async def test_an_address_that_somebody_wrote_by_hand_is_not_given(api: Api) -> None:
    parent = {"group": "", "resource": "services", "namespace": "default", "name": "mine"}
    await api.ok("POST", IPS, {"metadata": {"name": "10.96.0.77"}, "spec": {"parentRef": parent}})
    status = await api.refused("POST", SERVICES, service("a", clusterIP="10.96.0.77"))
    assert "already allocated" in status["message"]
    await api.ok("DELETE", f"{IPS}/10.96.0.77")
    await api.ok("POST", SERVICES, service("a", clusterIP="10.96.0.77"))


async def test_a_dual_stack_cluster_gives_two_addresses() -> None:
    async with running(with_range("10.96.0.0/16", "fd00:96::/112")) as api:
        made = await api.ok("POST", SERVICES, service("a", ipFamilyPolicy="PreferDualStack"))
        assert made["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
        assert len(made["spec"]["clusterIPs"]) == 2
        single = await api.merge(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "SingleStack"}})
        assert single["spec"]["clusterIPs"] == made["spec"]["clusterIPs"][:1]
        assert await held(api) == {address(made)}


async def test_the_kubernetes_service_is_there_and_stays(api: Api) -> None:
    """B105"""
    found = await api.ok("GET", f"{SERVICES}/kubernetes")
    assert address(found) == "10.96.0.1"
    assert found["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert found["spec"]["ports"] == [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert (await api.ok("GET", f"{slices}/kubernetes"))["endpoints"][0]["addresses"] == ["192.168.50.1"]
    await api.ok("DELETE", f"{SERVICES}/kubernetes")
    await api.merge(f"{slices}/kubernetes", {"endpoints": [{"addresses": ["192.168.50.9"]}]})
    await api.parts.bootstrap.run()
    assert address(await api.ok("GET", f"{SERVICES}/kubernetes")) == "10.96.0.1"
    assert (await api.ok("GET", f"{slices}/kubernetes"))["endpoints"][0]["addresses"] == ["192.168.50.1"]
    revision = api.parts.registry.store.revision
    await api.parts.bootstrap.run()
    assert api.parts.registry.store.revision == revision, "what is right is not written"


async def test_repair_writes_again_what_was_lost_and_tells(api: Api) -> None:
    made = await api.ok("POST", SERVICES, service("a", type="NodePort"))
    before = await held(api)
    await api.ok("DELETE", f"{IPS}/{address(made)}")
    port = made["spec"]["ports"][0]["nodePort"]
    await api.parts.registry.store.commit((), (Delete(f"{NODE_PORTS}{port}"),))
    await repair(api.parts.registry, {})
    assert await held(api) == before
    events = (await api.ok("GET", "/api/v1/namespaces/default/events"))["items"]
    assert {event["reason"] for event in events} == {"ClusterIPNotAllocated", "PortNotAllocated"}
    assert {event["involvedObject"]["name"] for event in events} == {"a"}


async def test_repair_of_what_is_right_writes_nothing(api: Api) -> None:
    await api.ok("POST", SERVICES, service("a", type="NodePort"))
    revision = api.parts.registry.store.revision
    await repair(api.parts.registry, {})
    assert api.parts.registry.store.revision == revision


async def test_a_port_key_without_a_service_is_released_in_the_third_round(api: Api) -> None:
    made = await api.ok("POST", SERVICES, service("a", type="NodePort"))
    await api.parts.registry.store.commit((), (Delete("/services/default/a"),))
    leaking = await repair(api.parts.registry, {})
    leaking = await repair(api.parts.registry, leaking)
    assert leaking == {made["spec"]["ports"][0]["nodePort"]: 2}
    assert await repair(api.parts.registry, leaking) == {}
    assert await held(api) == {address(made)}, "the address waits for its 60 s"


async def test_allocations_outlive_a_restart(tmp_path: Any) -> None:
    on_disk = replace(SETTINGS, data_dir=tmp_path)
    async with running(on_disk) as api:
        made = await api.ok("POST", SERVICES, service("a", type="NodePort"))
        before = await held(api)
    async with running(on_disk) as api:
        assert await api.ok("GET", f"{SERVICES}/a") == made
        assert await held(api) == before
        status = await api.refused("POST", SERVICES, service("b", clusterIP=address(made)))
        assert "already allocated" in status["message"]


async def test_the_metrics_count_what_was_given(api: Api) -> None:
    await api.ok("POST", SERVICES, service("a", type="NodePort"))
    await api.ok("POST", SERVICES, service("b", clusterIP="10.96.0.77"))
    await api.refused("POST", SERVICES, service("c", clusterIP="10.96.0.77"))
    text = (await api("GET", "/metrics")).body.decode()
    for line in (
        'kube_apiserver_clusterip_allocator_allocated_ips{cidr="10.96.0.0/16"} 3.0',
        'kube_apiserver_clusterip_allocator_available_ips{cidr="10.96.0.0/16"} 65531.0',
        'kube_apiserver_clusterip_allocator_allocation_total{cidr="10.96.0.0/16",scope="dynamic"} 1.0',
        'kube_apiserver_clusterip_allocator_allocation_errors_total{cidr="10.96.0.0/16",scope="static"} 1.0',
        "kube_apiserver_nodeport_allocator_allocated_ports 1.0",
        'kube_apiserver_nodeport_allocator_allocation_total{scope="dynamic"} 1.0',
        'apiserver_request_total{code="201",resource="services",verb="POST"} 2.0',
    ):
        assert line in text
