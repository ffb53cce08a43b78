"""The controller that keeps the EndpointSlices of each Service with a selector."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from clusterip.client.view import SERVICE_NAME, Change, Ref
from clusterip.controllers.endpointslice import hints, triggers
from clusterip.controllers.endpointslice.documents import MANAGED_BY, US
from clusterip.controllers.endpointslice.reconcile import Figures, Sync, deletions, in_order, reconcile
from clusterip.controllers.endpointslice.wanted import ZONE, Group, families, groups, is_ready
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.times import rfc3339
from clusterip.controllers.writes import NOTHING, Create, Key, Plan, Write, event
from clusterip.model.objects import EndpointSlice, Node, ObjectReference, Pod, Service

MAX_ENDPOINTS = 100


class EndpointSlices:
    """A key is a Service. Remembers of each what it knew at the last sync: moments for the trigger time, and what
    was last said about hints."""

    name = "endpointslice"

    def __init__(self, max_endpoints: int = MAX_ENDPOINTS) -> None:
        self._max = max_endpoints
        self._seen: dict[Key, triggers.Seen] = {}
        self._told: dict[Key, dict[str, str]] = {}  # by topology Auto: family -> why there are no hints; "": there are

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case Service():
                return (Key(ref.namespace, ref.name),)
            case EndpointSlice():
                return _services_named(change)
            case Pod():
                return services_of_pod(change, lookup)
            case Node():
                # Zones' shares change with any node: Services that live by them are planned anew.
                return {*services_on_node(ref.name, change, lookup), *(self._told if _share_changed(change) else ())}
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        service = lookup.view.get(Service, *key)
        if service is None:
            self._seen.pop(key, None)
            self._told.pop(key, None)
            return NOTHING
        if service.spec.type == "ExternalName" or service.spec.selector is None:
            return NOTHING
        pods = tuple(lookup.pods_selected(key.namespace, service.spec.selector))
        seen = triggers.seen(service, pods)
        moment = triggers.trigger(self._seen.get(key), seen)
        self._seen[key] = seen
        sync = Sync(service, triggers.text(moment) if moment else "", self._max)
        ours = [s for s in lookup.view.slices(*key) if s.metadata.labels.get(MANAGED_BY) == US]
        writes: list[Write] = deletions([s for s in ours if s.address_type not in families(service)])
        said: list[Write] = []
        figures = Figures()
        for family in families(service):
            wanted, words = self._hinted(key, family, service, groups(service, pods, lookup.view, family), lookup)
            said.extend(_say(service, reason, message, now) for reason, message in words)
            done, counted = reconcile(sync, family, [s for s in ours if s.address_type == family], wanted)
            writes.extend(done)
            figures += counted
        notes = {
            "topology": "Auto" if hints.topology_auto(service) else "Disabled",
            "traffic_distribution": service.spec.traffic_distribution or "",
        }
        return Plan((*in_order(writes), *said), figures=asdict(figures), notes=notes)

    def _hinted(
        self, key: Key, family: str, service: Service, found: Sequence[Group], lookup: Lookup
    ) -> tuple[Sequence[Group], list[tuple[str, str]]]:
        """The groups with hints, and (reason, message) of the event to tell, if there is something new to tell."""
        if not hints.topology_auto(service):
            self._told.pop(key, None)
            return hints.near(service, found), []
        dealt = hints.by_share(found, lookup.view.list(Node))
        why = dealt.why if isinstance(dealt, hints.Unavailable) else ""
        told = self._told.setdefault(key, {})
        news = told.get(family) != why
        told[family] = why
        if isinstance(dealt, hints.Unavailable):
            return found, [("TopologyAwareHintsDisabled", f"No hints: {why}, addressType: {family}")] if news else []
        words = (
            "TopologyAwareHintsEnabled",
            f"Endpoints are hinted by their zones' share of CPU, addressType: {family}",
        )
        return dealt, [words] if news else []


def _say(service: Service, reason: str, message: str, now: float) -> Create:
    meta = service.metadata
    about = ObjectReference(kind="Service", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="v1")
    return event(about, reason, message, warning=reason.endswith("Disabled"), now=rfc3339(now))


def _services_named(change: Change) -> set[Key]:
    """By the label of a slice, before and after."""
    slices = [s for s in (change.before, change.after) if isinstance(s, EndpointSlice)]
    return {
        Key(s.metadata.namespace, s.metadata.labels[SERVICE_NAME]) for s in slices if SERVICE_NAME in s.metadata.labels
    }


def services_of_pod(change: Change, lookup: Lookup) -> set[Key]:
    """Those whose endpoints the change of a pod can change."""
    pods = [pod for pod in (change.before, change.after) if isinstance(pod, Pod)]
    if len(pods) == 2 and _as_endpoint(pods[0]) == _as_endpoint(pods[1]):
        return set()
    return {Key(pod.metadata.namespace, name) for pod in pods for name in lookup.services_selecting(pod)}


def _as_endpoint(pod: Pod) -> tuple[object, ...]:
    """All of a pod that an endpoint shows."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return (
        meta.uid,
        meta.labels,
        meta.deletion_timestamp is None,
        spec.node_name,
        spec.hostname,
        spec.subdomain,
        status.pod_ip,
        status.pod_ips,
        status.ended,
        is_ready(pod),
    )


def services_on_node(node: str, change: Change, lookup: Lookup) -> set[Key]:
    """Those with pods on a node that came, went or moved to another zone."""
    zones = [n.metadata.labels.get(ZONE, "") if isinstance(n, Node) else None for n in (change.before, change.after)]
    if zones[0] == zones[1]:
        return set()
    return {
        Key(pod.metadata.namespace, name) for pod in lookup.pods_on(node) for name in lookup.services_selecting(pod)
    }


def _share_changed(change: Change) -> bool:
    """Whether the change of a node can change the zones' shares."""
    seen = [
        (n.metadata.labels, n.status.allocatable.get("cpu"), hints.node_ready(n)) if isinstance(n, Node) else None
        for n in (change.before, change.after)
    ]
    return seen[0] != seen[1]
