"""Nodes that fall silent, and pods of nodes that are gone.

A node renews its Lease every few seconds. When that stops for `GRACE`, nobody knows how the node is: Ready becomes
Unknown, and its pods are not ready, so that traffic goes elsewhere. Source: Kubernetes docs, "Nodes", "Leases".
"""

from collections.abc import Iterable

import msgspec

from clusterip.client.view import Change, Ref
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.times import rfc3339
from clusterip.controllers.writes import NOTHING, Delete, Key, Owner, Patch, Plan, Write
from clusterip.model.objects import Condition, Lease, Node, Pod
from clusterip.model.resources import NODES, PODS

GRACE = 40.0  # seconds
LEASES_IN = "kube-node-lease"


class NodeLifecycle:
    """A key is a node. Times silence by our own clock, from when a sign of life was seen: clocks of nodes differ."""

    name = "node-lifecycle"

    def __init__(self, grace: float = GRACE) -> None:
        self._grace = grace
        self._heard: dict[str, tuple[tuple[str, str], float]] = {}  # node -> (last sign of life, when we saw it)

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case Node():
                return (Key("", ref.name),)
            case Lease() if ref.namespace == LEASES_IN:
                return (Key("", ref.name),)
            case Pod() as pod if isinstance(change.after, Pod) and pod.spec.node_name in self._heard:
                # One that says it is ready on a node that is silent.
                node = lookup.view.get(Node, "", pod.spec.node_name)
                return (Key("", pod.spec.node_name),) if node and _ready(node).status == "Unknown" else ()
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        node = lookup.view.get(Node, "", key.name)
        if node is None:
            self._heard.pop(key.name, None)
            return NOTHING
        lease = lookup.view.get(Lease, LEASES_IN, key.name)
        sign = (lease.spec.renew_time or "" if lease else "", _ready(node).last_heartbeat_time or "")
        known = self._heard.get(key.name)
        if known is None or known[0] != sign:
            self._heard[key.name] = known = (sign, now)
        left = known[1] + self._grace - now
        if left > 0:
            return Plan(again_after=left + 0.01)
        writes = [_unknown(node, now)] if _ready(node).status != "Unknown" else []
        return Plan((*writes, *_unready_pods(node, lookup, now)))


class LostPods:
    """A key is a pod: one that is bound to a node that does not exist will never be ended by anybody else."""

    name = "pod-garbage-collector"

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after:
            case Pod() as pod:
                return (Key(ref.namespace, ref.name),) if _lost(pod, lookup) else ()
            case None if isinstance(change.before, Node):
                return [Key(pod.metadata.namespace, pod.metadata.name) for pod in lookup.pods_on(ref.name)]
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        pod = lookup.view.get(Pod, *key)
        if pod is None or not _lost(pod, lookup):
            return NOTHING
        node = Owner(NODES, "", pod.spec.node_name, "", Node)
        return Plan((Delete(PODS, *key, pod.metadata.uid, grace_seconds=0, unless=(node,)),))


def _lost(pod: Pod, lookup: Lookup) -> bool:
    return bool(pod.spec.node_name) and lookup.view.get(Node, "", pod.spec.node_name) is None


def _ready(node: Node) -> Condition:
    return next((c for c in node.status.conditions if c.type == "Ready"), Condition(type="Ready"))


def _unknown(node: Node, now: float) -> Write:
    said = Condition(
        type="Ready",
        status="Unknown",
        reason="NodeStatusUnknown",
        message="The node agent has stopped renewing its lease.",
        last_transition_time=rfc3339(now),
        last_heartbeat_time=_ready(node).last_heartbeat_time,
    )
    conditions = [*(c for c in node.status.conditions if c.type != "Ready"), said]
    patch = {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": {"conditions": [msgspec.to_builtins(condition) for condition in conditions]},
    }
    return Patch(NODES, "", node.metadata.name, patch, "status")


def _unready_pods(node: Node, lookup: Lookup, now: float) -> list[Write]:
    writes: list[Write] = []
    for pod in lookup.pods_on(node.metadata.name):
        if not any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions):
            continue
        said = Condition(type="Ready", status="False", reason="NodeNotReady", last_transition_time=rfc3339(now))
        conditions = [said if c.type == "Ready" else c for c in pod.status.conditions]
        meta = pod.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "status": {"conditions": [msgspec.to_builtins(condition) for condition in conditions]},
        }
        writes.append(Patch(PODS, meta.namespace, meta.name, patch, "status"))
    return writes
