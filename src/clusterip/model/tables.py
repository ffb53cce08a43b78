"""`Table` answers: what `kubectl get` prints, made by the server as kubectl expects it."""

from collections.abc import Iterable

from clusterip.model import columns, pod_columns, resources
from clusterip.model.columns import Layout
from clusterip.model.resources import Resource
from clusterip.model.status import Object

META_VERSION = "meta.k8s.io/v1"
_LAYOUTS: dict[Resource, Layout] = {
    resources.SERVICES: columns.SERVICE,
    resources.PODS: pod_columns.POD,
    resources.NODES: pod_columns.NODE,
    resources.ENDPOINT_SLICES: columns.ENDPOINT_SLICE,
    resources.ENDPOINTS: columns.ENDPOINTS,
    resources.NAMESPACES: columns.NAMESPACE,
    resources.DEPLOYMENTS: columns.DEPLOYMENT,
    resources.REPLICA_SETS: columns.REPLICA_SET,
    resources.EVENTS: columns.EVENT,
    resources.CONFIG_MAPS: columns.CONFIG_MAP,
    resources.LEASES: columns.LEASE,
    resources.SERVICE_CIDRS: columns.SERVICE_CIDR,
    resources.IP_ADDRESSES: columns.IP_ADDRESS,
}
_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def table(
    resource: Resource,
    objs: Iterable[Object],
    *,
    now: float,
    include: str = "Metadata",
    resource_version: str = "",
    remaining: int = 0,
    continue_token: str = "",
    with_definitions: bool = True,
) -> Object:
    """`now`: Unix seconds. `include`: Metadata, Object or None, what each row carries besides its cells.
    `with_definitions`: false for all but the first event of a watch."""
    layout = _LAYOUTS[resource]
    metadata: Object = {"resourceVersion": resource_version}
    if continue_token:
        metadata["continue"] = continue_token
    if remaining:
        metadata["remainingItemCount"] = remaining
    return {
        "kind": "Table",
        "apiVersion": META_VERSION,
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in layout.columns] if with_definitions else None,
        "rows": [_row(resource, layout, obj, include, now) for obj in objs],
    }


def _row(resource: Resource, layout: Layout, obj: Object, include: str, now: float) -> Object:
    row: Object = {"cells": layout.cells(obj, now)}
    phase = (obj.get("status") or {}).get("phase")
    if resource is resources.PODS and phase in _COMPLETED:
        row["conditions"] = [
            {"type": "Completed", "status": "True", "reason": phase, "message": _COMPLETED[phase]},
        ]
    match include:
        case "Object":
            row["object"] = obj
        case "None":
            row["object"] = None
        case _:
            row["object"] = partial(obj)
    return row


def partial(obj: Object) -> Object:
    """The object as `PartialObjectMetadata`: its metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_VERSION, "metadata": obj["metadata"]}
