"""EndpointSlices of Services without a selector, from the Endpoints object that somebody keeps by hand.

Source: conformance 3.8.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from ipaddress import ip_address

import msgspec

from clusterip.client.view import SERVICE_NAME, Change, Ref
from clusterip.controllers.endpointslice.documents import content
from clusterip.controllers.endpointslice.packing import Make, Packing, Rewrite, pack
from clusterip.controllers.endpointslice.reconcile import Figures, deletions, figures, in_order
from clusterip.controllers.endpointslice.triggers import TRIGGER_TIME
from clusterip.controllers.endpointslice.wanted import FAMILIES, Group, port_key
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.ownership import reference
from clusterip.controllers.times import rfc3339
from clusterip.controllers.writes import Create, Key, Plan, Update, Write, event
from clusterip.model.objects import (
    Endpoint,
    EndpointAddress,
    EndpointConditions,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointsPort,
    EndpointSubset,
    Labels,
    ObjectReference,
    Service,
)
from clusterip.model.resources import ENDPOINT_SLICES, ENDPOINTS
from clusterip.model.status import Object

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
US = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST = 1000  # addresses of one subset


class Mirroring:
    """A key is an Endpoints object. Remembers what it last said of addresses it had to leave out."""

    name = "endpointslice-mirroring"

    def __init__(self, max_endpoints: int = 1000) -> None:
        self._max = max_endpoints
        self._told: dict[Key, frozenset[tuple[str, str]]] = {}

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case Service() | Endpoints():
                return (Key(ref.namespace, ref.name),)
            case EndpointSlice():
                slices = [s for s in (change.before, change.after) if isinstance(s, EndpointSlice)]
                return {
                    Key(ref.namespace, s.metadata.labels.get(SERVICE_NAME, ""))
                    for s in slices
                    if s.metadata.labels.get(MANAGED_BY) == US
                }
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        endpoints, service = lookup.view.get(Endpoints, *key), lookup.view.get(Service, *key)
        ours = [s for s in lookup.view.slices(*key) if s.metadata.labels.get(MANAGED_BY) == US]
        if endpoints is None or not _mirrored(endpoints, service):
            self._told.pop(key, None)
            return Plan(tuple(deletions(ours)))
        groups, left_out = groups_of(endpoints.subsets or ())
        writes: list[Write] = deletions([s for s in ours if s.address_type not in FAMILIES.values()])
        total = Figures()
        for family in FAMILIES.values():
            of_family = [s for s in ours if s.address_type == family]
            done, counted = _reconcile(endpoints, family, of_family, groups.get(family, ()), self._max)
            writes.extend(done)
            total += counted
        news = left_out - self._told.get(key, frozenset())
        self._told[key] = left_out
        said = [_say(endpoints, reason, message, now) for reason, message in sorted(news)]
        return Plan((*in_order(writes), *said), figures={**asdict(total), "skipped": len(left_out)})


def _mirrored(endpoints: Endpoints, service: Service | None) -> bool:
    return (
        service is not None
        and service.spec.selector is None
        and endpoints.metadata.labels.get(SKIP) != "true"
        and LEADER not in endpoints.metadata.annotations
    )


def groups_of(subsets: Iterable[EndpointSubset]) -> tuple[Mapping[str, tuple[Group, ...]], frozenset[tuple[str, str]]]:
    """By family; and (reason, message) of what could not be taken over."""
    found: dict[str, dict[tuple[EndpointPort, ...], dict[str, Endpoint]]] = {}
    left_out: set[tuple[str, str]] = set()
    for subset in subsets:
        ports = tuple(sorted(map(_port, subset.ports), key=port_key))
        both = [*((a, True) for a in subset.addresses), *((a, False) for a in subset.not_ready_addresses)]
        if len(both) > MOST:
            left_out.add(("TooManyAddressesToMirror", f"a subset has {len(both)} addresses, {MOST} are taken over"))
        for address, ready in both[:MOST]:
            try:
                parsed = ip_address(address.ip)
            except ValueError:
                left_out.add(("InvalidIPAddress", f"{address.ip} is no IP address"))
                continue
            group = found.setdefault(FAMILIES[parsed.version], {}).setdefault(ports, {})
            group.setdefault(str(parsed), _endpoint(address, str(parsed), ready=ready))
    groups = {
        family: tuple(Group(ports, tuple(endpoints.values())) for ports, endpoints in by_ports.items())
        for family, by_ports in found.items()
    }
    return groups, frozenset(left_out)


def _port(port: EndpointsPort) -> EndpointPort:
    return EndpointPort(name=port.name, port=port.port, protocol=port.protocol, app_protocol=port.app_protocol)


def _endpoint(address: EndpointAddress, text: str, *, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=(text,),
        conditions=EndpointConditions(ready=ready),
        hostname=address.hostname or None,
        node_name=address.node_name,
        target_ref=address.target_ref,
    )


def _reconcile(
    endpoints: Endpoints, family: str, slices: Sequence[EndpointSlice], groups: Sequence[Group], limit: int
) -> tuple[list[Write], Figures]:
    if not groups:  # no placeholder here: slices of a family come with its addresses
        return deletions(slices), figures(slices, groups, Packing(deletes=tuple(slices)), limit)
    labels, annotations = _labels(endpoints), _annotations(endpoints)

    def outdated(slice_: EndpointSlice) -> bool:
        return slice_.metadata.labels != labels or slice_.metadata.annotations != annotations

    packing = pack(slices, groups, limit, outdated)
    namespace = endpoints.metadata.namespace
    writes: list[Write] = [
        *(Create(ENDPOINT_SLICES, namespace, _made(make, family, endpoints)) for make in packing.makes),
        *(
            Update(ENDPOINT_SLICES, namespace, r.slice.metadata.name, _rewritten(r, endpoints))
            for r in packing.rewrites
        ),
        *deletions(packing.deletes),
    ]
    return writes, figures(slices, groups, packing, limit)


def _labels(endpoints: Endpoints) -> Labels:
    return {**endpoints.metadata.labels, SERVICE_NAME: endpoints.metadata.name, MANAGED_BY: US}


def _annotations(endpoints: Endpoints) -> Labels:
    return {k: v for k, v in endpoints.metadata.annotations.items() if k not in (TRIGGER_TIME, LAST_APPLIED)}


def _made(make: Make, family: str, endpoints: Endpoints) -> Object:
    meta = endpoints.metadata
    metadata: Object = {
        "generateName": f"{meta.name}-",
        "namespace": meta.namespace,
        "labels": _labels(endpoints),
        "annotations": _annotations(endpoints),
        "ownerReferences": [reference(endpoints, ENDPOINTS)],
    }
    return {"metadata": metadata, "addressType": family, **content(make.ports, make.endpoints)}


def _rewritten(rewrite: Rewrite, endpoints: Endpoints) -> Object:
    metadata: Object = msgspec.to_builtins(rewrite.slice.metadata)
    metadata["labels"] = _labels(endpoints)
    metadata["annotations"] = _annotations(endpoints)
    return {
        "metadata": metadata,
        "addressType": rewrite.slice.address_type,
        **content(rewrite.ports, rewrite.endpoints),
    }


def _say(endpoints: Endpoints, reason: str, message: str, now: float) -> Create:
    meta = endpoints.metadata
    about = ObjectReference(kind="Endpoints", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="v1")
    return event(about, reason, message, warning=True, now=rfc3339(now))
