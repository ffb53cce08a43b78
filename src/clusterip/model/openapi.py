"""OpenAPI v3 of what is served, as kubectl's `apply`, `edit`, `explain` and `--validate` ask for it.

Schemas are those of schema.py, turned from JSON Schema into OpenAPI's dialect and limited to what the served kinds
reach; paths are written from resources.py.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from clusterip.model.resources import DELETE_OPTIONS, RESOURCES, SCALES, Resource
from clusterip.model.schema import ANNOUNCED_VERSION, META, definitions, struct_of
from clusterip.model.status import Object

_REFERENCE = "#/components/schemas/"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_STATUS = f"{META}.Status"
_PATCH = f"{META}.Patch"
_JSON = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
# name, type, what it does
_WRITE = (
    ("dryRun", "string", "All: go through every stage but the last, and store nothing"),
    ("fieldManager", "string", "who makes this change"),
    ("fieldValidation", "string", "what to do about unknown and duplicate fields: Ignore, Warn or Strict"),
)
_LIST = (
    ("allowWatchBookmarks", "boolean", "send events that only carry a resourceVersion"),
    ("continue", "string", "where the previous page of a list ended"),
    ("fieldSelector", "string", "only objects whose fields match"),
    ("labelSelector", "string", "only objects whose labels match"),
    ("limit", "integer", "the most objects in one answer"),
    ("resourceVersion", "string", "the state to read or to watch from"),
    ("resourceVersionMatch", "string", "how resourceVersion is meant: Exact or NotOlderThan"),
    ("sendInitialEvents", "boolean", "begin a watch with the state as it is"),
    ("timeoutSeconds", "integer", "the longest the call may take"),
    ("watch", "boolean", "a stream of changes instead of a list"),
)
_DELETE = (
    ("dryRun", "string", "All: go through every stage but the last, and delete nothing"),
    ("gracePeriodSeconds", "integer", "seconds from the request to the end; zero means at once"),
    ("propagationPolicy", "string", "what becomes of dependents: Orphan, Background or Foreground"),
)
_FORCE = (("force", "boolean", "take over fields that other managers own"),)


def index() -> Object:
    """The answer at /openapi/v3: where each group-version's document is. The hash lets clients keep what they have."""
    prefixes = sorted({resource.path for resource in RESOURCES})
    digest = hashlib.sha256(repr((ANNOUNCED_VERSION, RESOURCES)).encode()).hexdigest()[:32].upper()
    return {
        "paths": {
            path.removeprefix("/"): {"serverRelativeURL": f"/openapi/v3{path}?hash={digest}"} for path in prefixes
        }
    }


@cache
def document(group: str, version: str) -> Object:
    """The document of one group-version; KeyError where nothing of it is served. Treat as read-only."""
    served = [resource for resource in RESOURCES if (resource.group, resource.version) == (group, version)]
    if not served:
        raise KeyError(f"{group}/{version}")
    paths: Object = {}
    for resource in served:
        paths.update(_paths(resource))
    wanted = {struct_of(resource).name for resource in served} | {_list_name(resource) for resource in served}
    wanted |= {struct_of(DELETE_OPTIONS).name, _STATUS, _PATCH}
    if any("scale" in resource.subresources for resource in served):
        wanted.add(struct_of(SCALES).name)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{ANNOUNCED_VERSION}"},
        "paths": paths,
        "components": {"schemas": {name: _schema(name) for name in sorted(_reachable(wanted))}},
    }


# --- schemas ---------------------------------------------------------------------------------------------------


def _reachable(names: set[str]) -> set[str]:
    found: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += _references(definitions()[name])
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _schema(name: str) -> Object:
    if name == _INT_OR_STRING:
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    turned: Object = _turned(definitions()[name])
    return turned


def _turned(value: Any) -> Any:
    """JSON Schema's `type: [string, null]`, enums and references as OpenAPI 3.0 writes them."""
    if isinstance(value, list):
        return [_turned(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        reference = {"$ref": _REFERENCE + value["$ref"].rpartition("/")[2]}
        # a reference may have no neighbours, so one with a description goes into an allOf
        rest = {key: inner for key, inner in value.items() if key != "$ref"}
        return {**rest, "allOf": [reference]} if rest else reference
    turned = {}
    for key, inner in value.items():
        if key == "type" and isinstance(inner, list):
            turned[key] = next(word for word in inner if word != "null")
        elif key == "properties":
            turned[key] = {name: _turned(one) for name, one in inner.items()}
        elif key != "enum":  # only on apiVersion and kind, where the real document has none
            turned[key] = _turned(inner)
    return turned


# --- paths -----------------------------------------------------------------------------------------------------


def _list_name(resource: Resource) -> str:
    return f"{struct_of(resource).name}List"


def _paths(resource: Resource) -> Iterator[tuple[str, Object]]:
    kind = struct_of(resource).name
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{resource.path}{scope}/{resource.plural}"
    if resource.namespaced:
        everywhere = {"get": _operation(resource, "list", _LIST, answer=_list_name(resource))}
        yield f"{resource.path}/{resource.plural}", everywhere
    yield (
        collection,
        {
            "get": _operation(resource, "list", _LIST, answer=_list_name(resource)),
            "post": _operation(resource, "post", _WRITE, answer=kind, body=(_JSON, kind)),
            "delete": _operation(resource, "deletecollection", _LIST + _DELETE, answer=_STATUS),
            "parameters": _path_parameters(resource, named=False),
        },
    )
    yield f"{collection}/{{name}}", _item(resource, kind, deletable=True)
    for subresource in resource.subresources:
        if subresource in ("status", "scale"):
            body = struct_of(SCALES).name if subresource == "scale" else kind
            yield f"{collection}/{{name}}/{subresource}", _item(resource, body, deletable=False)


def _item(resource: Resource, kind: str, *, deletable: bool) -> Object:
    operations: Object = {
        "get": _operation(resource, "get", (), answer=kind),
        "put": _operation(resource, "put", _WRITE, answer=kind, body=(_JSON, kind)),
        "patch": _operation(resource, "patch", _WRITE + _FORCE, answer=kind, body=(_PATCHES, _PATCH)),
        "parameters": _path_parameters(resource, named=True),
    }
    if deletable:
        options = struct_of(DELETE_OPTIONS).name
        operations["delete"] = _operation(resource, "delete", _DELETE, answer=_STATUS, body=(_JSON, options))
    return operations


def _operation(
    resource: Resource,
    action: str,
    parameters: tuple[tuple[str, str, str], ...],
    *,
    answer: str,
    body: tuple[tuple[str, ...], str] | None = None,
) -> Object:
    operation: Object = {
        "tags": [f"{resource.group or 'core'}_{resource.version}"],
        "description": f"{action} {resource.kind}",
        "parameters": [_parameter("query", *parameter) for parameter in parameters],
        "responses": {"200": {"description": "OK", "content": _content(_JSON, answer)}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }
    if body:
        operation["requestBody"] = {"required": True, "content": _content(*body)}
    return operation


def _content(media: tuple[str, ...], schema: str) -> Object:
    return {one: {"schema": {"$ref": _REFERENCE + schema}} for one in media}


def _path_parameters(resource: Resource, *, named: bool) -> list[Object]:
    parameters = [_parameter("query", "pretty", "string", "indent the answer")]
    if resource.namespaced:
        parameters.append(_parameter("path", "namespace", "string", "the namespace the object is in"))
    if named:
        parameters.append(_parameter("path", "name", "string", f"name of the {resource.kind}"))
    return parameters


def _parameter(where: str, name: str, kind: str, description: str) -> Object:
    parameter: Object = {
        "name": name,
        "in": where,
        "description": description,
        "schema": {"type": kind, "uniqueItems": True},
    }
    if where == "path":
        parameter["required"] = True
    return parameter
