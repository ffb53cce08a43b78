"""The Endpoints object of each Service with a selector: the older form of its slices, which `kubectl get endpoints`
and old clients read. One family, all addresses in one object.

Source: conformance 3.1, 3.4.
"""

from collections.abc import Iterable, Sequence

import msgspec

from clusterip.client.view import Change, Ref
from clusterip.controllers.endpointslice import triggers
from clusterip.controllers.endpointslice.controller import services_of_pod
from clusterip.controllers.endpointslice.wanted import address_of, families, is_ready, port_key, ports_of
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.writes import NOTHING, Create, Delete, Key, Plan, Update
from clusterip.model.objects import (
    EndpointAddress,
    Endpoints,
    EndpointsPort,
    EndpointSubset,
    Labels,
    ObjectReference,
    Pod,
    Service,
)
from clusterip.model.resources import ENDPOINTS
from clusterip.model.status import Object

MANAGED_BY = "endpoints.kubernetes.io/managed-by"
US = "endpoint-controller"
HEADLESS = "service.kubernetes.io/headless"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MOST = 1000  # addresses of one object


class EndpointsObjects:
    """A key is a Service. Remembers the moments of the last sync for the trigger time."""

    name = "endpoints"

    def __init__(self) -> None:
        self._seen: dict[Key, triggers.Seen] = {}

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case Service() | Endpoints():
                return (Key(ref.namespace, ref.name),)
            case Pod():
                return services_of_pod(change, lookup)
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        service, held = lookup.view.get(Service, *key), lookup.view.get(Endpoints, *key)
        if service is None:
            self._seen.pop(key, None)
            ours = held is not None and held.metadata.labels.get(MANAGED_BY) == US
            return Plan((Delete(ENDPOINTS, *key, held.metadata.uid),)) if held and ours else NOTHING
        if service.spec.type == "ExternalName" or service.spec.selector is None:
            return NOTHING
        pods = tuple(lookup.pods_selected(key.namespace, service.spec.selector))
        seen = triggers.seen(service, pods)
        moment = triggers.trigger(self._seen.get(key), seen)
        self._seen[key] = seen
        found, truncated = subsets(service, pods)
        labels = labels_of(service)
        if held and held.metadata.labels == labels and (held.subsets or ()) == found:
            return NOTHING
        document = _document(service, held, found, labels)
        _annotate(document["metadata"], triggers.text(moment) if moment else "", truncated=truncated)
        if held is None:
            going = service.metadata.deletion_timestamp is not None
            return NOTHING if going else Plan((Create(ENDPOINTS, key.namespace, document),))
        return Plan((Update(ENDPOINTS, *key, document),))


def labels_of(service: Service) -> Labels:
    headless = {HEADLESS: ""} if service.spec.cluster_ip in ("", "None") else {}
    copied = {key: value for key, value in service.metadata.labels.items() if key != HEADLESS}
    return {**copied, **headless, MANAGED_BY: US}


def subsets(service: Service, pods: Iterable[Pod]) -> tuple[tuple[EndpointSubset, ...], bool]:
    """Addresses grouped by the ports they serve; and whether some had to be left out."""
    family = families(service)[0]
    publish = service.spec.publish_not_ready_addresses
    ready: dict[tuple[EndpointsPort, ...], list[EndpointAddress]] = {}
    unready: dict[tuple[EndpointsPort, ...], list[EndpointAddress]] = {}
    room, truncated = MOST, False
    # The ready ones first: where room is short, they are the ones worth telling.
    for pod in sorted(pods, key=lambda pod: (not (publish or is_ready(pod)), pod.metadata.name)):
        address = address_of(pod, family)
        if not address or pod.status.ended:
            continue
        if pod.metadata.deletion_timestamp and not publish:
            continue
        ports = tuple(
            EndpointsPort(
                name=p.name or "", port=p.port or 0, protocol=p.protocol or "TCP", app_protocol=p.app_protocol
            )
            for p in sorted(ports_of(service, pod), key=port_key)
        )
        if service.spec.ports and not ports:
            continue
        if not room:
            truncated = True
            continue
        room -= 1
        group = ready if publish or is_ready(pod) else unready
        group.setdefault(ports, []).append(_address(service, pod, address))
    found = tuple(
        EndpointSubset(addresses=_sorted(ready.get(p, ())), not_ready_addresses=_sorted(unready.get(p, ())), ports=p)
        for p in sorted({*ready, *unready}, key=lambda ports: [(p.name, p.port, p.protocol) for p in ports])
    )
    return found, truncated


def _address(service: Service, pod: Pod, address: str) -> EndpointAddress:
    meta = pod.metadata
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return EndpointAddress(
        ip=address,
        hostname=pod.spec.hostname if named else "",
        node_name=pod.spec.node_name or None,
        target_ref=ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _sorted(addresses: Sequence[EndpointAddress]) -> tuple[EndpointAddress, ...]:
    return tuple(
        sorted(addresses, key=lambda address: (address.ip, address.target_ref.name if address.target_ref else ""))
    )


def _document(service: Service, held: Endpoints | None, found: tuple[EndpointSubset, ...], labels: Labels) -> Object:
    meta = service.metadata
    metadata: Object = {"name": meta.name, "namespace": meta.namespace}
    if held is not None:
        metadata = msgspec.to_builtins(held.metadata)
    metadata["labels"] = labels
    return {"metadata": metadata, "subsets": [_subset(subset) for subset in found]}


def _subset(subset: EndpointSubset) -> Object:
    document: Object = msgspec.to_builtins(subset)
    document["ports"] = [{"protocol": port.protocol, **msgspec.to_builtins(port)} for port in subset.ports]
    return document


def _annotate(metadata: Object, moment: str, *, truncated: bool) -> None:
    annotations = dict(metadata.pop("annotations", {}))
    for key, value in ((triggers.TRIGGER_TIME, moment), (OVER_CAPACITY, "truncated" if truncated else "")):
        annotations.pop(key, None)
        if value:
            annotations[key] = value
    if annotations:
        metadata["annotations"] = annotations
