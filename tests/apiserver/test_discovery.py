"""What there is, as clients of different ages ask for it."""

import pytest
from tests.apiserver.serving import Api

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "version"),
    [(f"{V2},{V2BETA1},application/json", "v2"), (f"{V2BETA1},application/json", "v2beta1"), (V2, "v2")],
)
async def test_all_comes_in_two_answers_to_who_can_read_them(api: Api, accept: str, version: str) -> None:
    reply = await api("GET", "/api", accept=accept)
    assert reply.headers["Content-Type"] == V2.replace("v=v2", f"v={version}")
    assert reply.json["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    (core,) = reply.json["items"]
    services = next(r for r in core["versions"][0]["resources"] if r["resource"] == "services")
    assert services["shortNames"] == ["svc"]
    assert services["scope"] == "Namespaced"
    assert [sub["subresource"] for sub in services["subresources"]] == ["status", "proxy"]
    groups = {item["metadata"]["name"] for item in (await api.ok("GET", "/apis", accept=accept))["items"]}
    assert groups == {"apps", "coordination.k8s.io", "discovery.k8s.io", "networking.k8s.io"}


@pytest.mark.parametrize("accept", ["application/json", "*/*", ""])
async def test_others_ask_group_by_group(api: Api, accept: str) -> None:
    assert (await api.ok("GET", "/api/", accept=accept))["versions"] == ["v1"]
    groups = (await api.ok("GET", "/apis", accept=accept))["groups"]
    assert "apps/v1" in [version["groupVersion"] for group in groups for version in group["versions"]]
    assert (await api.ok("GET", "/apis/apps"))["preferredVersion"]["groupVersion"] == "apps/v1"
    resources = {r["name"]: r for r in (await api.ok("GET", "/apis/apps/v1"))["resources"]}
    assert resources["deployments"]["kind"] == "Deployment"
    assert (resources["deployments/scale"]["group"], resources["deployments/scale"]["kind"]) == ("autoscaling", "Scale")
    core = {r["name"] for r in (await api.ok("GET", "/api/v1"))["resources"]}
    assert {"pods/exec", "pods/log", "pods/binding", "pods/eviction", "services/proxy"} <= core
    assert "pods/portforward" not in core


async def test_the_version_is_the_announced_one(api: Api) -> None:
    for path in ("/version", "/version/"):
        assert (await api.ok("GET", path))["gitVersion"] == "v1.36.0"


async def test_schemas_are_where_the_index_says(api: Api) -> None:
    index = await api.ok("GET", "/openapi/v3")
    for name, place in index["paths"].items():
        document = await api.ok("GET", place["serverRelativeURL"])
        assert document["openapi"].startswith("3.0"), name
    old = await api("GET", "/openapi/v2")
    assert (old.code, old.body) == (200, b"")


async def test_every_static_path_of_the_conformance_suite_answers(api: Api) -> None:
    """B109"""
    for path in ("/healthz", "/livez", "/readyz", "/api", "/apis", "/metrics", "/openapi/v2", "/version", "/"):
        assert (await api("GET", path)).code == 200
