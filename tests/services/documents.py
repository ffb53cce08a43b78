"""Services and slices as short as a test wants to say them."""

from typing import Any

import msgspec

from clusterip.model.objects import EndpointSlice, Service


def service(**spec: Any) -> Service:
    labels = spec.pop("labels", {})
    status = spec.pop("status", {})
    full = {"clusterIP": "10.96.0.10", "ports": [{"name": "http", "port": 80}], **spec}
    metadata = {"name": "web", "namespace": "default", "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": full, "status": status}, Service)


def slice_of(*endpoints: dict[str, Any], name: str = "web-x", **fields: Any) -> EndpointSlice:
    labels = {"kubernetes.io/service-name": "web", **fields.pop("labels", {})}
    document = {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": list(endpoints),
        **fields,
    }
    return msgspec.convert(document, EndpointSlice)


def endpoint(address: str, state: str = "ready", node: str = "node-2", **fields: Any) -> dict[str, Any]:
    conditions = {
        "ready": {},  # nil means ready and serving, not terminating
        "unready": {"ready": False, "serving": False, "terminating": False},
        "leaving": {"ready": False, "serving": True, "terminating": True},
        "gone": {"ready": False, "serving": False, "terminating": True},
        "published": {"ready": True, "serving": True, "terminating": True},
    }[state]
    return {"addresses": [address], "conditions": conditions, "nodeName": node, **fields}
