"""Reading collections: selectors, pages at one revision, and the forms they come in."""

from typing import Any

import pytest
from tests.apiserver.serving import CONFIG_MAPS, NAMESPACE, PODS, SERVICES, Api, config_map, pod, service

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def make(api: Api, *wanted: str) -> None:
    for name in wanted:
        obj = config_map(name)
        obj["metadata"]["labels"] = {"name": name, "first": name[0]}
        await api.ok("POST", CONFIG_MAPS, obj)


async def test_a_list_says_what_it_is_and_of_which_revision(api: Api) -> None:
    await make(api, "b", "a")
    listed = await api.ok("GET", CONFIG_MAPS)
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) == api.parts.registry.store.revision
    assert names(listed) == ["a", "b"]
    assert (await api.ok("GET", "/api/v1/configmaps"))["items"] == listed["items"]
    assert (await api.ok("GET", "/api/v1/namespaces/kube-system/configmaps"))["items"] == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("labelSelector=name=ab", ["ab"]),
        ("labelSelector=first%20in%20(a,c)", ["ab", "ac"]),
        ("labelSelector=!first", []),
        ("labelSelector=name!=ab,first=a", ["ac"]),
        ("fieldSelector=metadata.name=ab", ["ab"]),
        ("fieldSelector=metadata.name=ab&labelSelector=first=b", []),
        ("fieldSelector=metadata.name!=ab", ["ac", "ba"]),
        ("fieldSelector=metadata.namespace=other", []),
    ],
)
async def test_selectors_say_which(api: Api, query: str, found: list[str]) -> None:
    await make(api, "ab", "ac", "ba")
    assert names(await api.ok("GET", f"{CONFIG_MAPS}?{query}")) == found
    assert names(await api.ok("GET", f"/api/v1/configmaps?{query}")) == found


async def test_fields_beyond_metadata_select_too(api: Api) -> None:
    await api.ok("POST", PODS, pod("a", nodeName="node-1"))
    await api.ok("POST", PODS, pod("b"))
    assert names(await api.ok("GET", f"{PODS}?fieldSelector=spec.nodeName=node-1")) == ["a"]
    assert names(await api.ok("GET", f"{PODS}?fieldSelector=spec.nodeName=")) == ["b"]
    await api.ok("POST", SERVICES, service("s", clusterIP="None"))
    assert names(await api.ok("GET", f"{SERVICES}?fieldSelector=spec.clusterIP!=None")) == ["kubernetes"]


@pytest.mark.parametrize(
    "query", ["labelSelector=a%20in%20(b", "fieldSelector=spec.nothing=1", "limit=some", "watch=maybe"]
)
async def test_a_query_that_cannot_be_read_is_refused(api: Api, query: str) -> None:
    assert (await api.refused("GET", f"{CONFIG_MAPS}?{query}"))["code"] == 400


async def test_pages_are_of_one_revision_whatever_happens_between(api: Api) -> None:
    await make(api, "a", "b", "c", "d", "e")
    first = await api.ok("GET", f"{CONFIG_MAPS}?limit=2")
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    await api.ok("DELETE", f"{CONFIG_MAPS}/c")
    await make(api, "bb")
    await api.merge(f"{CONFIG_MAPS}/d", {"data": {"new": "1"}})
    second = await api.ok("GET", f"{CONFIG_MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert names(second) == ["c", "d"]
    assert "data" not in second["items"][1]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = await api.ok("GET", f"{CONFIG_MAPS}?limit=2&continue={second['metadata']['continue']}")
    assert names(third) == ["e"]
    assert "continue" not in third["metadata"]


async def test_pages_of_a_selection_hold_as_many_as_asked(api: Api) -> None:
    await make(api, "a1", "b1", "a2", "b2", "a3")
    first = await api.ok("GET", f"{CONFIG_MAPS}?limit=2&labelSelector=first=a")
    assert names(first) == ["a1", "a2"]
    assert "remainingItemCount" not in first["metadata"]
    token = first["metadata"]["continue"]
    assert names(await api.ok("GET", f"{CONFIG_MAPS}?limit=2&labelSelector=first=a&continue={token}")) == ["a3"]


async def test_a_page_of_a_forgotten_revision_is_expired(api: Api) -> None:
    await make(api, "a", "b")
    token = (await api.ok("GET", f"{CONFIG_MAPS}?limit=1"))["metadata"]["continue"]
    store = api.parts.registry.store
    store._history.oldest = store.revision + 1  # type: ignore[attr-defined]
    status = await api.refused("GET", f"{CONFIG_MAPS}?limit=1&continue={token}")
    assert (status["code"], status["reason"]) == (410, "Expired")


@pytest.mark.parametrize("token", ["nonsense", "WzEsMl0", "bnVsbA", "W10", "%FF%FE"])
async def test_a_continue_token_that_is_none_of_ours_is_refused(api: Api, token: str) -> None:
    assert (await api.refused("GET", f"{CONFIG_MAPS}?limit=1&continue={token}"))["code"] == 400


async def test_any_version_is_good_enough_for_version_zero(api: Api) -> None:
    await make(api, "a")
    assert names(await api.ok("GET", f"{CONFIG_MAPS}?resourceVersion=0")) == ["a"]


async def test_a_version_to_come_is_asked_for_again_later(api: Api) -> None:
    status = await api.refused("GET", f"{CONFIG_MAPS}?resourceVersion=999999")
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["details"]["retryAfterSeconds"] == 1


async def test_an_exact_version_is_that_one(api: Api) -> None:
    await make(api, "a")
    then = api.parts.registry.store.revision
    await make(api, "b")
    assert names(await api.ok("GET", f"{CONFIG_MAPS}?resourceVersion={then}")) == ["a", "b"]
    assert names(await api.ok("GET", f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")) == ["a"]


async def test_a_table_has_kubectls_columns_and_metadata_in_its_rows(api: Api) -> None:
    await api.ok("POST", SERVICES, service("a", clusterIP="10.96.0.10"))
    table = await api.ok("GET", f"{SERVICES}?limit=1", accept=TABLE)
    assert table["kind"] == "Table"
    assert [c["name"] for c in table["columnDefinitions"] if not c["priority"]] == [
        *("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age")
    ]
    assert table["rows"][0]["cells"][:5] == ["a", "ClusterIP", "10.96.0.10", "<none>", "80/TCP"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table["metadata"]["continue"]
    table = await api.ok("GET", f"{SERVICES}/a?includeObject=Object", accept=TABLE)
    assert table["rows"][0]["object"]["spec"]["clusterIP"] == "10.96.0.10"
    table = await api.ok("GET", f"{SERVICES}/a?includeObject=None", accept=TABLE)
    assert table["rows"][0]["object"] is None


async def test_metadata_alone_can_be_had(api: Api) -> None:
    await make(api, "a")
    listed = await api.ok("GET", CONFIG_MAPS, accept=PARTIAL)
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}
    one = await api.ok("GET", f"{CONFIG_MAPS}/a", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert one == listed["items"][0]


async def test_a_form_we_do_not_have_is_not_acceptable(api: Api) -> None:
    for accept in ("application/vnd.kubernetes.protobuf", "text/html", "application/json;as=Table;v=v7;g=meta.k8s.io"):
        assert (await api.refused("GET", NAMESPACE, accept=accept))["code"] == 406
    protobuf_first = "application/vnd.kubernetes.protobuf,application/json"
    assert (await api.ok("GET", NAMESPACE, accept=protobuf_first))["kind"] == "Namespace"
