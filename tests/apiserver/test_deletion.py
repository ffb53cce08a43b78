"""From a deletion to the end: grace, finalizers, preconditions, namespaces."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.apiserver.serving import CONFIG_MAPS, PODS, Api, config_map, pod

from clusterip.apiserver.requests import Target
from clusterip.model.resources import CONFIG_MAPS as CONFIG_MAPS_KIND
from clusterip.model.status import ApiError
from clusterip.store.base import Check, Delete, Put, Store


def options(**said: Any) -> dict[str, Any]:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **said}


async def test_what_nothing_holds_goes_at_once(api: Api) -> None:
    made = await api.ok("POST", CONFIG_MAPS, config_map("a"))
    status = await api.ok("DELETE", f"{CONFIG_MAPS}/a", options(propagationPolicy="Background"))
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await api.refused("DELETE", f"{CONFIG_MAPS}/a"))["code"] == 404


async def test_a_pod_on_a_node_is_given_its_grace_and_goes_when_the_node_says(api: Api) -> None:
    await api.ok("POST", PODS, pod("a", nodeName="node-1", terminationGracePeriodSeconds=7))
    ending = await api.ok("DELETE", f"{PODS}/a")
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 7
    assert ending["metadata"]["deletionTimestamp"] > ending["metadata"]["creationTimestamp"]
    again = await api.ok("DELETE", f"{PODS}/a", options(gracePeriodSeconds=60))
    assert again["metadata"] == ending["metadata"], "asking again cannot delay it"
    sooner = await api.ok("DELETE", f"{PODS}/a", options(gracePeriodSeconds=2))
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 2
    assert (await api("GET", f"{PODS}/a")).code == 200
    await api.ok("DELETE", f"{PODS}/a", options(gracePeriodSeconds=0))
    assert (await api("GET", f"{PODS}/a")).code == 404


async def test_a_pod_that_no_node_runs_goes_at_once(api: Api) -> None:
    await api.ok("POST", PODS, pod("unassigned"))
    await api.ok("POST", PODS, pod("done", nodeName="node-1"))
    await api.merge(f"{PODS}/done/status", {"status": {"phase": "Succeeded"}})
    for name in ("unassigned", "done"):
        await api.ok("DELETE", f"{PODS}/{name}")
        assert (await api("GET", f"{PODS}/{name}")).code == 404


async def test_the_grace_may_come_in_the_query(api: Api) -> None:
    await api.ok("POST", PODS, pod("a", nodeName="node-1"))
    await api.ok("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
    assert (await api("GET", f"{PODS}/a")).code == 404


async def test_finalizers_hold_until_the_last_is_gone(api: Api) -> None:
    obj = config_map("a")
    obj["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
    await api.ok("POST", CONFIG_MAPS, obj)
    ending = await api.ok("DELETE", f"{CONFIG_MAPS}/a")
    assert ending["metadata"]["deletionTimestamp"]
    assert ending["kind"] == "ConfigMap"
    patch = {"metadata": {"finalizers": ["example.com/one", "example.com/new"]}}
    reply = await api("PATCH", f"{CONFIG_MAPS}/a", patch, content_type="application/merge-patch+json")
    assert reply.code == 422, "no new ones while it goes"
    await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["example.com/two"]}})
    assert (await api("GET", f"{CONFIG_MAPS}/a")).code == 200
    last = await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert last["metadata"]["name"] == "a"
    assert (await api("GET", f"{CONFIG_MAPS}/a")).code == 404


async def test_how_dependents_go_is_a_finalizer_for_the_collector(api: Api) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        await api.ok("POST", CONFIG_MAPS, config_map("a"))
        ending = await api.ok("DELETE", f"{CONFIG_MAPS}/a", options(propagationPolicy=policy))
        assert ending["metadata"]["finalizers"] == [finalizer]
        await api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert (await api.refused("DELETE", f"{CONFIG_MAPS}/a?propagationPolicy=Sideways"))["code"] == 400


async def test_a_precondition_that_does_not_hold_is_a_conflict(api: Api) -> None:
    made = await api.ok("POST", CONFIG_MAPS, config_map("a"))
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        status = await api.refused("DELETE", f"{CONFIG_MAPS}/a", options(preconditions=wrong))
        assert (status["code"], status["reason"]) == (409, "Conflict")
    uid = made["metadata"]["uid"]
    await api.ok("DELETE", f"{CONFIG_MAPS}/a", options(preconditions={"uid": uid}))


async def test_a_namespace_is_terminating_until_it_is_finalized(api: Api) -> None:
    path = "/api/v1/namespaces/test"
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "test"}})
    await api.ok("POST", f"{path}/configmaps", config_map("a"))
    ending = await api.ok("DELETE", path)
    assert ending["status"]["phase"] == "Terminating"
    status = await api.refused("POST", f"{path}/configmaps", config_map("b"))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert "is being terminated" in status["message"]
    await api.merge(path, {"spec": {"finalizers": []}})
    assert (await api("GET", path)).code == 200, "only the finalize subresource ends it"
    await api.ok("DELETE", f"{path}/configmaps")
    assert (await api.ok("GET", f"{path}/configmaps"))["items"] == []
    await api.ok("PUT", f"{path}/finalize", {**ending, "spec": {"finalizers": []}, "metadata": {"name": "test"}})
    assert (await api("GET", path)).code == 404


class Interfering:
    """A store on which somebody deletes namespace `test` just before the first commit that asks for a ConfigMap."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._store = api.parts.registry.store
        self._done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Put | Delete]) -> int:
        if not self._done and any(write.key.startswith("/configmaps/") for write in writes):
            self._done = True
            await self._api.ok("DELETE", "/api/v1/namespaces/test")
        return await self._store.commit(checks, writes)


async def test_nothing_slips_into_a_namespace_while_it_begins_to_go(api: Api) -> None:
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "test"}})
    registry = replace(api.parts.registry, store=cast(Store, Interfering(api)))
    with pytest.raises(ApiError, match="is being terminated"):
        await registry.create(Target(CONFIG_MAPS_KIND, "test"), config_map("a"))
    assert (await api.ok("GET", "/api/v1/namespaces/test/configmaps"))["items"] == []


async def test_the_namespaces_of_the_cluster_itself_stay(api: Api) -> None:
    for name in ("default", "kube-system"):
        assert (await api.refused("DELETE", f"/api/v1/namespaces/{name}"))["code"] == 403
