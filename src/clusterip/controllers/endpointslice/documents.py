"""Slices as the documents that are sent. Pure. Source: conformance 3.2."""

from typing import Any

import msgspec

from clusterip.client.view import SERVICE_NAME
from clusterip.controllers.endpointslice.packing import Make, Rewrite
from clusterip.controllers.endpointslice.triggers import TRIGGER_TIME
from clusterip.controllers.endpointslice.wanted import Ports
from clusterip.model.objects import Endpoint, EndpointSlice, Labels, Service
from clusterip.model.status import Object

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
US = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
_RESERVED = frozenset((SERVICE_NAME, MANAGED_BY, HEADLESS))


def labels_of(service: Service) -> Labels:
    """Of each slice of the Service: the Service's own, and those by which slices are found."""
    copied = {key: value for key, value in service.metadata.labels.items() if key not in _RESERVED}
    headless = {HEADLESS: ""} if service.spec.cluster_ip in ("", "None") else {}
    return {**copied, **headless, SERVICE_NAME: service.metadata.name, MANAGED_BY: US}


def owned_by(slice_: EndpointSlice, service: Service) -> bool:
    return any(owner.controller and owner.uid == service.metadata.uid for owner in slice_.metadata.owner_references)


def made(make: Make, family: str, service: Service, moment: str) -> Object:
    """`moment`: the trigger time, "" for none."""
    name = service.metadata.name
    metadata: Object = {
        "generateName": f"{name}-" if len(name) <= 247 else name,  # five characters follow, 253 is the most
        "namespace": service.metadata.namespace,
        "labels": labels_of(service),
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "name": name,
                "uid": service.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if moment:
        metadata["annotations"] = {TRIGGER_TIME: moment}
    return {"metadata": metadata, "addressType": family, **content(make.ports, make.endpoints)}


def rewritten(rewrite: Rewrite, service: Service, moment: str) -> Object:
    old = rewrite.slice.metadata
    annotations = {key: value for key, value in old.annotations.items() if key != TRIGGER_TIME}
    if moment:
        annotations[TRIGGER_TIME] = moment
    metadata: Object = {**msgspec.to_builtins(old), "labels": labels_of(service)}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return {
        "metadata": metadata,
        "addressType": rewrite.slice.address_type,
        **content(rewrite.ports, rewrite.endpoints),
    }


def content(ports: Ports, endpoints: tuple[Endpoint, ...]) -> Object:
    return {
        "ports": [
            {
                "name": port.name or "",
                "protocol": port.protocol,
                "port": port.port,
                **({"appProtocol": port.app_protocol} if port.app_protocol else {}),
            }
            for port in ports
        ],
        "endpoints": [_endpoint(endpoint) for endpoint in endpoints],
    }


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(endpoint)
    return document
