"""scale, binding, eviction, and the ServiceCIDRs' life."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.apiserver.serving import PODS, SERVICES, Api, pod, service

from clusterip.apiserver.cidrs import step
from clusterip.apiserver.registry import Registry

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
IPS = "/apis/networking.k8s.io/v1/ipaddresses"


async def deploy(api: Api) -> Any:
    labels = {"app": "a", "tier": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    expressions = [{"key": "tier", "operator": "In", "values": ["y", "x"]}, {"key": "old", "operator": "DoesNotExist"}]
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": expressions}
    return await api.ok(
        "POST", DEPLOYMENTS, {"metadata": {"name": "a"}, "spec": {"selector": selector, "template": template}}
    )


async def test_scale_shows_and_sets_the_replicas(api: Api) -> None:
    await deploy(api)
    scale = await api.ok("GET", f"{DEPLOYMENTS}/a/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"]["selector"] == "app=a,tier in (x,y),!old"
    scale["spec"]["replicas"] = 5
    set_ = await api.ok("PUT", f"{DEPLOYMENTS}/a/scale", scale)
    assert set_["spec"] == {"replicas": 5}
    assert (await api.refused("PUT", f"{DEPLOYMENTS}/a/scale", scale))["reason"] == "Conflict"
    await api.merge(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}})
    found = await api.ok("GET", f"{DEPLOYMENTS}/a")
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (2, 3)


async def test_a_negative_scale_is_refused(api: Api) -> None:
    await deploy(api)
    reply = await api(
        "PATCH", f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": -1}}, content_type="application/merge-patch+json"
    )
    assert reply.code == 422


async def test_a_binding_gives_a_pod_its_node_once(api: Api) -> None:
    await api.ok("POST", PODS, pod("a"))
    binding = {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "node-1"},
    }
    await api.ok("POST", f"{PODS}/a/binding", binding)
    bound = await api.ok("GET", f"{PODS}/a")
    assert bound["spec"]["nodeName"] == "node-1"
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    assert (await api.refused("POST", f"{PODS}/a/binding", binding))["code"] == 409
    assert (await api.refused("POST", f"{PODS}/none/binding", binding))["code"] == 404
    assert (await api.refused("POST", f"{PODS}/a/binding", {"target": {"kind": "Moon"}}))["code"] == 400


async def test_an_eviction_is_a_deletion(api: Api) -> None:
    await api.ok("POST", PODS, pod("a", nodeName="node-1"))
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "a"}}
    await api.ok("POST", f"{PODS}/a/eviction", {**eviction, "deleteOptions": {"gracePeriodSeconds": 3}})
    assert (await api.ok("GET", f"{PODS}/a"))["metadata"]["deletionGracePeriodSeconds"] == 3


@pytest.mark.parametrize(
    ("name", "spec", "reason"),
    [
        ("010.96.0.5", {"parentRef": {"resource": "services", "name": "a"}}, "FieldValueInvalid"),
        ("10.96.0.5", {}, "FieldValueRequired"),
        ("10.96.0.5", {"parentRef": {"resource": "services"}}, "FieldValueRequired"),
        ("10.96.0.5", {"parentRef": {"name": "a"}}, "FieldValueRequired"),
    ],
)
async def test_an_ip_address_must_say_what_and_whose_it_is(api: Api, name: str, spec: Any, reason: str) -> None:
    """E55"""
    status = await api.refused("POST", IPS, {"metadata": {"name": name}, "spec": spec})
    assert status["code"] == 422
    assert reason in {cause["reason"] for cause in status["details"]["causes"]}


async def test_an_ip_address_stays_whose_it_is(api: Api) -> None:
    """E55"""
    other = {"spec": {"parentRef": {"name": "other"}}}
    reply = await api("PATCH", f"{IPS}/10.96.0.1", other, content_type="application/merge-patch+json")
    assert reply.code == 422


@pytest.mark.parametrize(
    "cidrs", [[], ["10.0.0.1/24"], ["10.0.0.0/24", "10.0.1.0/24"], ["10.0.0.0/24", "fd00::/112", "fd01::/112"]]
)
async def test_ranges_that_cannot_be_are_refused(api: Api, cidrs: list[str]) -> None:
    """E56"""
    status = await api.refused("POST", CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": cidrs}})
    assert status["code"] == 422


async def test_a_range_gets_a_finalizer_and_becomes_ready_and_usable(api: Api) -> None:
    wanted = service("a", clusterIP="10.97.0.5")
    await api.refused("POST", SERVICES, wanted)
    await api.ok("POST", CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}})
    await step(api.parts.registry)
    found = await api.ok("GET", f"{CIDRS}/more")
    assert found["metadata"]["finalizers"] == ["networking.k8s.io/service-cidr-finalizer"]
    (ready,) = found["status"]["conditions"]
    assert (ready["type"], ready["status"], ready["message"]) == ("Ready", "True", "Kubernetes Service CIDR is ready")
    await api.ok("POST", SERVICES, wanted)
    revision = api.parts.registry.store.revision
    await step(api.parts.registry)
    assert api.parts.registry.store.revision == revision, "nothing to do is nothing written"


def later(registry: Registry) -> Registry:
    return replace(registry, now=lambda: datetime.now(UTC) + timedelta(seconds=11))


async def test_a_range_in_use_stays_until_its_last_address_is_free(api: Api) -> None:
    await api.ok("POST", CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}})
    await step(api.parts.registry)
    await api.ok("POST", SERVICES, service("a", clusterIP="10.97.0.5"))
    await api.ok("DELETE", f"{CIDRS}/more")
    await step(later(api.parts.registry))
    (ready,) = (await api.ok("GET", f"{CIDRS}/more"))["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "Terminating")
    await api.refused("POST", SERVICES, service("b", clusterIP="10.97.0.6"))
    await api.ok("DELETE", f"{SERVICES}/a")
    await step(api.parts.registry)
    assert (await api("GET", f"{CIDRS}/more")).code == 200, "allocators need ten seconds to notice"
    await step(later(api.parts.registry))
    assert (await api("GET", f"{CIDRS}/more")).code == 404


async def test_a_range_that_another_covers_may_go_though_it_is_used(api: Api) -> None:
    await api.ok("POST", CIDRS, {"metadata": {"name": "part"}, "spec": {"cidrs": ["10.96.7.0/24"]}})
    await step(api.parts.registry)
    await api.ok("POST", SERVICES, service("a", clusterIP="10.96.7.7"))
    await api.ok("DELETE", f"{CIDRS}/part")
    await step(later(api.parts.registry))
    assert (await api("GET", f"{CIDRS}/part")).code == 404
    await api.refused("POST", SERVICES, service("b", clusterIP="10.96.7.7"))


async def test_a_write_of_a_range_wakes_its_keeper(api: Api) -> None:
    api.parts.registry.ranges.changed.clear()
    await api.ok("POST", CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/24"]}})
    async with asyncio.timeout(1):
        await api.parts.registry.ranges.changed.wait()
