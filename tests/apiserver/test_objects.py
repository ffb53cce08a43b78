"""The life of an object: made, read, changed, and who wins when two write at once."""

import asyncio
import uuid
from typing import Any

import pytest
from tests.apiserver.serving import CONFIG_MAPS, NAMESPACE, PODS, SERVICES, Api, config_map, pod, service


async def test_a_new_object_gets_what_only_the_server_can_give(api: Api) -> None:
    made = await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    metadata = made["metadata"]
    assert uuid.UUID(metadata["uid"])
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert await api.ok("GET", f"{CONFIG_MAPS}/a") == made


async def test_what_the_client_says_of_server_fields_is_not_believed(api: Api) -> None:
    obj = config_map("a")
    obj["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    obj["metadata"] |= {"deletionTimestamp": "2001-01-01T00:00:00Z"}
    metadata = (await api.ok("POST", CONFIG_MAPS, obj))["metadata"]
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in metadata
    assert "generation" not in metadata


async def test_a_generated_name_is_the_prefix_and_five_characters(api: Api) -> None:
    obj = config_map("")
    obj["metadata"] = {"generateName": "part-"}
    names = {(await api.ok("POST", CONFIG_MAPS, obj))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("part-") and len(name) == 10 for name in names)


async def test_without_a_name_nothing_is_made(api: Api) -> None:
    status = await api.refused("POST", CONFIG_MAPS, {"metadata": {}})
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_the_same_name_twice_is_already_there(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    status = await api.refused("POST", CONFIG_MAPS, config_map("a"))
    assert (status["code"], status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_namespace_must_be_there_and_be_the_one_of_the_path(api: Api) -> None:
    status = await api.refused("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (status["code"], status["message"]) == (404, 'namespaces "nowhere" not found')
    obj = config_map("a")
    obj["metadata"]["namespace"] = "other"
    assert (await api.refused("POST", CONFIG_MAPS, obj))["code"] == 400


async def test_an_update_under_a_stale_version_is_a_conflict(api: Api) -> None:
    """E52"""
    first = await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    second = await api.ok("PUT", f"{CONFIG_MAPS}/a", {**first, "data": {"x": "2"}})
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    status = await api.refused("PUT", f"{CONFIG_MAPS}/a", {**first, "data": {"x": "3"}})
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert (await api.ok("GET", f"{CONFIG_MAPS}/a"))["data"] == {"x": "2"}


async def test_an_update_without_a_version_is_unconditional(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    assert (await api.ok("PUT", f"{CONFIG_MAPS}/a", config_map("a", x="2")))["data"] == {"x": "2"}


async def test_an_update_of_another_object_of_the_same_name_is_a_conflict(api: Api) -> None:
    first = await api.ok("POST", CONFIG_MAPS, config_map("a"))
    first["metadata"]["uid"] = str(uuid.uuid4())
    del first["metadata"]["resourceVersion"]
    assert (await api.refused("PUT", f"{CONFIG_MAPS}/a", first))["reason"] == "Conflict"


async def test_a_write_that_changes_nothing_is_no_revision(api: Api) -> None:
    first = await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    assert await api.ok("PUT", f"{CONFIG_MAPS}/a", first) == first
    assert await api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}) == first


async def test_patches_that_race_all_arrive(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    await asyncio.gather(*(api.merge(f"{CONFIG_MAPS}/a", {"data": {f"k{n}": str(n)}}) for n in range(40)))
    assert (await api.ok("GET", f"{CONFIG_MAPS}/a"))["data"] == {f"k{n}": str(n) for n in range(40)}


async def test_of_updates_that_race_under_one_version_one_wins(api: Api) -> None:
    first = await api.ok("POST", CONFIG_MAPS, config_map("a"))
    bodies = [{**first, "data": {"n": str(n)}} for n in range(10)]
    codes = [reply.code for reply in await asyncio.gather(*(api("PUT", f"{CONFIG_MAPS}/a", body) for body in bodies))]
    assert sorted(codes) == [200] + [409] * 9


async def test_unconditional_updates_that_race_all_succeed(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a"))
    await asyncio.gather(*(api.ok("PUT", f"{CONFIG_MAPS}/a", config_map("a", n=str(n))) for n in range(10)))


async def test_a_patch_that_names_a_stale_version_is_a_conflict(api: Api) -> None:
    first = await api.ok("POST", CONFIG_MAPS, config_map("a"))
    await api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    patch = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    reply = await api("PATCH", f"{CONFIG_MAPS}/a", patch, content_type="application/merge-patch+json")
    assert reply.code == 409


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]),
        ("application/merge-patch+json", {"spec": {"ports": [{"port": 81, "targetPort": 80}]}}),
        (
            "application/strategic-merge-patch+json",
            {"spec": {"ports": [{"port": 81, "targetPort": 80}, {"$patch": "delete", "port": 80}]}},
        ),
    ],
)
async def test_every_kind_of_patch_is_taken(api: Api, content_type: str, patch: Any) -> None:
    await api.ok("POST", SERVICES, service("a"))
    changed = await api.ok("PATCH", f"{SERVICES}/a", patch, content_type=content_type)
    assert [(port["port"], port["targetPort"]) for port in changed["spec"]["ports"]] == [(81, 80)]


async def test_dry_run_answers_as_if_and_stores_nothing(api: Api) -> None:
    before = api.parts.registry.store.revision
    made = await api.ok("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
    assert made["metadata"]["uid"]
    assert (await api("GET", f"{CONFIG_MAPS}/a")).code == 404
    await api.ok("POST", CONFIG_MAPS, config_map("b", x="1"))
    assert (await api("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("b"))).code == 409
    changed = await api.ok("PUT", f"{CONFIG_MAPS}/b?dryRun=All", config_map("b", x="2"))
    assert changed["data"] == {"x": "2"}
    await api.ok("DELETE", f"{CONFIG_MAPS}/b?dryRun=All")
    assert (await api.ok("GET", f"{CONFIG_MAPS}/b"))["data"] == {"x": "1"}
    assert api.parts.registry.store.revision == before + 1


async def test_generation_counts_what_is_wanted_and_not_what_is(api: Api) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await api.ok(
        "POST",
        path,
        {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}},
    )
    assert (made["metadata"]["generation"], made["spec"]["replicas"]) == (1, 1)
    labelled = await api.merge(f"{path}/d", {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["generation"] == 1
    scaled = await api.merge(f"{path}/d", {"spec": {"replicas": 3}})
    assert scaled["metadata"]["generation"] == 2
    reported = await api.merge(f"{path}/d/status", {"status": {"replicas": 3}})
    assert reported["metadata"]["generation"] == 2


async def test_status_and_spec_are_written_apart(api: Api) -> None:
    await api.ok("POST", PODS, {**pod("a"), "status": {"phase": "Running"}})
    assert (await api.ok("GET", f"{PODS}/a"))["status"]["phase"] == "Pending"
    running = await api.merge(f"{PODS}/a/status", {"status": {"phase": "Running", "podIP": "10.244.1.2"}})
    assert running["status"]["phase"] == "Running"
    patched = await api.merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Failed"}})
    assert patched["status"]["phase"] == "Running"
    assert patched["metadata"]["labels"]["x"] == "y"
    again = await api.merge(f"{PODS}/a/status", {"spec": {"hostname": "other"}, "status": {"phase": "Failed"}})
    assert again["status"]["phase"] == "Failed"
    assert "hostname" not in again["spec"]
    assert await api.ok("GET", f"{PODS}/a/status") == again


async def test_a_node_comes_with_its_status(api: Api) -> None:
    node = {
        "metadata": {"name": "node-1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.50.11"}]},
    }
    made = await api.ok("POST", "/api/v1/nodes", node)
    assert made["status"]["addresses"][0]["address"] == "192.168.50.11"


async def test_unknown_fields_are_warned_of_or_refused_as_asked(api: Api) -> None:
    obj = {**config_map("a"), "dota": {}}
    reply = await api("POST", CONFIG_MAPS, obj)
    assert reply.headers["Warning"] == '299 - "unknown field \\"dota\\""'
    assert "dota" not in reply.json
    status = await api.refused("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", {**config_map("b"), "dota": {}})
    assert 'unknown field "dota"' in status["message"]
    reply = await api("POST", f"{CONFIG_MAPS}?fieldValidation=Ignore", {**config_map("c"), "dota": {}})
    assert "Warning" not in reply.headers


async def test_bodies_come_in_yaml_too(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'on'\n"
    made = await api.ok("POST", CONFIG_MAPS, body, content_type="application/yaml")
    assert made["data"] == {"x": "on"}


async def test_answers_go_out_in_yaml_too(api: Api) -> None:
    reply = await api("GET", f"{NAMESPACE}", accept="application/yaml")
    assert reply.headers["Content-Type"] == "application/yaml"
    assert b"kind: Namespace\n" in reply.body
