"""OpenAPI v3, as far as kubectl reads it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from clusterip.model import openapi
from clusterip.model.resources import RESOURCES

GROUPS = sorted({(resource.group, resource.version) for resource in RESOURCES})


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_index_lists_a_document_for_each_group_and_version() -> None:
    paths = openapi.index()["paths"]
    assert set(paths) == {resource.path.removeprefix("/") for resource in RESOURCES}
    assert all(entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=") for path, entry in paths.items())


@pytest.mark.parametrize(("group", "version"), GROUPS)
def test_every_reference_leads_somewhere_and_no_type_is_a_list(group: str, version: str) -> None:
    document = openapi.document(group, version)
    schemas = document["components"]["schemas"]
    assert {reference.rpartition("/")[2] for reference in references(document)} <= set(schemas)
    assert '"type": [' not in json.dumps(document)


@pytest.mark.parametrize("resource", RESOURCES, ids=[r.kind for r in RESOURCES])
def test_kubectl_finds_the_kind_and_what_a_patch_may_be_asked(resource: Any) -> None:
    document = openapi.document(resource.group, resource.version)
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    assert any(
        kind in schema.get("x-kubernetes-group-version-kind", ())
        for schema in document["components"]["schemas"].values()
    )
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    patch = document["paths"][f"{resource.path}{scope}/{resource.plural}/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == kind
    assert {"fieldValidation", "dryRun", "fieldManager"} <= {parameter["name"] for parameter in patch["parameters"]}


def test_merge_keys_and_descriptions_are_kept() -> None:
    spec = openapi.document("", "v1")["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"]
    assert spec["properties"]["ports"]["x-kubernetes-patch-merge-key"] == "port"
    assert spec["properties"]["clusterIP"]["description"]


def test_a_group_that_is_not_served_has_no_document() -> None:
    with pytest.raises(KeyError):
        openapi.document("batch", "v1")
