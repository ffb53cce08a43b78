"""What there is: discovery documents in the aggregated form and the one-by-one form, and the server's version. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from clusterip.apiserver.output import JSON
from clusterip.model.resources import RESOURCES, Resource
from clusterip.model.schema import ANNOUNCED_VERSION
from clusterip.model.status import Object

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """`kind` and `group`, `version` of what travels, "" for those of the object itself."""

    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""


def subresource(resource: Resource, name: str) -> Subresource:
    """What may be done with a subresource. Source: Kubernetes API reference, 1.36."""
    match name:
        case "scale":
            return Subresource(("get", "patch", "update"), "Scale", "autoscaling", "v1")
        case "binding":
            return Subresource(("create",), "Binding", "", "v1")
        case "eviction":
            return Subresource(("create",), "Eviction", "policy", "v1")
        case "exec" | "attach" | "portforward":
            kinds = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}
            return Subresource(("create", "get"), kinds[name], "", "v1")
        case "proxy":
            return Subresource(("create", "delete", "get", "patch", "update"), f"{resource.kind}ProxyOptions", "", "v1")
        case "log":
            return Subresource(("get",))
        case "finalize":
            return Subresource(("update",))
        case _:
            return Subresource(("get", "patch", "update"))


def version() -> Object:
    major, minor, _ = ANNOUNCED_VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{ANNOUNCED_VERSION}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def group_versions() -> Sequence[tuple[str, str]]:
    """(group, version) of everything served, the core group first."""
    return tuple(dict.fromkeys(sorted((r.group, r.version) for r in RESOURCES)))


def _of(group: str, version: str) -> Sequence[Resource]:
    return tuple(r for r in RESOURCES if (r.group, r.version) == (group, version))


# --- aggregated ------------------------------------------------------------------------------------------------


def aggregated_form(accept: str) -> str:
    """The version of the aggregated form that the client takes, best first; "": none."""
    for part in accept.replace(" ", "").split(","):
        parameters = part.split(";")[1:]
        if part.startswith(JSON) and "g=apidiscovery.k8s.io" in parameters and "as=APIGroupDiscoveryList" in parameters:
            for found in ("v2", "v2beta1"):
                if f"v={found}" in parameters:
                    return found
        elif part.split(";")[0] in (JSON, "*/*") and not parameters:
            return ""
    return ""


@cache
def aggregated(form: str, *, core: bool) -> Object:
    groups: dict[str, list[Object]] = {}
    for group, version in group_versions():
        if (group == "") is core:
            resources = [_aggregated_resource(resource) for resource in _of(group, version)]
            groups.setdefault(group, []).append({"version": version, "resources": resources, "freshness": "Current"})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{form}",
        "metadata": {},
        "items": [
            {"metadata": {"name": group} if group else {}, "versions": versions} for group, versions in groups.items()
        ],
    }


def _aggregated_resource(resource: Resource) -> Object:
    subresources = []
    for name in resource.subresources:
        sub = subresource(resource, name)
        kind = _response_kind(resource, sub)
        subresources.append({"subresource": name, "responseKind": kind, "verbs": list(sub.verbs)})
    return {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(VERBS),
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
        **({"categories": list(resource.categories)} if resource.categories else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def _response_kind(resource: Resource, sub: Subresource) -> Object:
    if sub.kind:
        return {"group": sub.group, "version": sub.version, "kind": sub.kind}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


# --- one by one ------------------------------------------------------------------------------------------------


def api_versions(address: str) -> Object:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def groups() -> Object:
    found = [group_of(group) for group in dict.fromkeys(group for group, _ in group_versions() if group)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_without_kind(one) for one in found if one]}


def _without_kind(group: Object) -> Object:
    return {field: value for field, value in group.items() if field not in ("kind", "apiVersion")}


def group_of(name: str) -> Object | None:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for group, version in group_versions()
        if group == name
    ]
    if not name or not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0]}


def resources_of(group: str, version: str) -> Object | None:
    listed: list[Object] = []
    for resource in _of(group, version):
        listed.append(
            {
                "name": resource.plural,
                "singularName": resource.kind.lower(),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(VERBS),
                **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
                **({"categories": list(resource.categories)} if resource.categories else {}),
            }
        )
        listed.extend(_listed_subresource(resource, name) for name in resource.subresources)
    if not listed:
        return None
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}


def _listed_subresource(resource: Resource, name: str) -> Object:
    sub = subresource(resource, name)
    elsewhere = {"group": sub.group, "version": sub.version} if sub.group else {}
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind or resource.kind,
        "verbs": list(sub.verbs),
        **elsewhere,
    }
