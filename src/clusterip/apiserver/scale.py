"""The `scale` subresource: a workload seen as a number of replicas. Pure."""

from clusterip.apiserver import refusals
from clusterip.model.resources import SCALES
from clusterip.model.status import Object


def scale_of(obj: Object) -> Object:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": SCALES.kind,
        "apiVersion": SCALES.api_version,
        "metadata": {field: metadata[field] for field in shown if field in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": selector_text(spec.get("selector") or {}),
        },
    }


def scaled(obj: Object, scale: Object) -> Object:
    """`obj` with the replicas of `scale`, whose resourceVersion and uid are conditions."""
    wanted = scale.get("metadata") or {}
    if wanted.get("name") not in (None, "", obj["metadata"]["name"]):
        raise refusals.bad_request("the name of the Scale does not match the name on the URL")
    conditions = {field: wanted[field] for field in ("resourceVersion", "uid") if wanted.get(field)}
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return {
        **obj,
        "metadata": {**obj["metadata"], **conditions},
        "spec": {**(obj.get("spec") or {}), "replicas": replicas},
    }


def selector_text(selector: Object) -> str:
    """A LabelSelector as a query writes it: `app=web,tier in (a,b),!canary`."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        key, values = one.get("key", ""), ",".join(sorted(one.get("values") or ()))
        match one.get("operator"):
            case "In":
                terms.append(f"{key} in ({values})")
            case "NotIn":
                terms.append(f"{key} notin ({values})")
            case "Exists":
                terms.append(key)
            case "DoesNotExist":
                terms.append(f"!{key}")
    return ",".join(terms)
