"""The scheduler: a node for each pod that has none.

Of the nodes that can take it, the one with the fewest pods of the same owner, then with the fewest pods: replicas
spread. Source: Kubernetes docs, "Assigning Pods to Nodes", "Taints and Tolerations".
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from clusterip.client.view import Change, Ref
from clusterip.controllers.endpointslice.hints import node_ready
from clusterip.controllers.lookup import Lookup, carries
from clusterip.controllers.ownership import controller_of
from clusterip.controllers.times import rfc3339
from clusterip.controllers.writes import Bind, Key, Patch, Plan, Write, event
from clusterip.model.objects import Condition, Node, ObjectReference, Pod, Taint, Toleration
from clusterip.model.resources import PODS

OURS = ("", "default-scheduler")
ALL = Key("", "pods")  # one round places all that wait: each choice counts the ones before


class Scheduler:
    """Knows which pods wait. There is one key."""

    name = "scheduler"

    def __init__(self) -> None:
        self._waiting: dict[Ref, None] = {}

    def keys(self, ref: Ref, change: Change, lookup: Lookup) -> Iterable[Key]:
        match change.after or change.before:
            case Pod():
                if isinstance(change.after, Pod) and _waits(change.after):
                    if (
                        ref in self._waiting
                        and isinstance(change.before, Pod)
                        and _same_wish(change.before, change.after)
                    ):
                        return ()
                    self._waiting[ref] = None
                    return (ALL,)
                self._waiting.pop(ref, None)
                return (ALL,) if self._waiting and change.after is None else ()
            case Node():
                return (ALL,) if self._waiting and _offer(change.before) != _offer(change.after) else ()
            case _:
                return ()

    def plan(self, lookup: Lookup, key: Key, now: float) -> Plan:
        pods = (lookup.view.get(Pod, ref.namespace, ref.name) for ref in self._waiting)
        nodes = sorted(lookup.view.list(Node), key=lambda node: node.metadata.name)
        return Plan(place([pod for pod in pods if pod and _waits(pod)], nodes, lookup, now))


def place(pods: Sequence[Pod], nodes: Sequence[Node], lookup: Lookup, now: float) -> tuple[Write, ...]:
    """Binds what fits; of what does not, says why, once."""
    pods_of = {
        node.metadata.name: [p for p in lookup.pods_on(node.metadata.name) if not p.status.ended] for node in nodes
    }
    load = Counter({name: len(held) for name, held in pods_of.items()})
    family = Counter((name, _owner(pod)) for name, held in pods_of.items() for pod in held)
    binds: list[Write] = []
    words: list[Write] = []
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        reasons = {node.metadata.name: why_not(pod, node) for node in nodes}
        fitting = [name for name, reason in reasons.items() if not reason]
        if not fitting:
            words.extend(_failed(pod, reasons.values(), now))
            continue
        owner = _owner(pod)
        chosen = min(fitting, key=lambda name: (family[name, owner] if owner else 0, load[name], name))
        load[chosen] += 1
        family[chosen, owner] += 1
        meta = pod.metadata
        binds.append(Bind(meta.namespace, meta.name, meta.uid, chosen, meta.resource_version))
        message = f"Placed on {chosen}"
        words.append(event(_about(pod), "Scheduled", message, now=rfc3339(now)))
    return (*binds, *words)


def why_not(pod: Pod, node: Node) -> str:
    """ "" if the node can take the pod; else the reason, in words that several nodes can share."""
    if not carries(node.metadata.labels, pod.spec.node_selector):
        return "do not match its nodeSelector"
    unschedulable = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if node.spec.unschedulable and not _tolerates(pod.spec.tolerations, unschedulable):
        return "are unschedulable"
    if not node_ready(node):
        return "are not ready"
    for taint in node.spec.taints or ():
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerates(pod.spec.tolerations, taint):
            return f"have the taint {{{taint.key}: {taint.value}}}, which it does not tolerate"
    return ""


def _tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(
        toleration.effect in ("", taint.effect)
        and (toleration.key == taint.key or (not toleration.key and toleration.operator == "Exists"))
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations
    )


def _failed(pod: Pod, reasons: Iterable[str], now: float) -> list[Write]:
    counted = Counter(reasons)
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(counted.items()))
    total = counted.total()
    message = f"0/{total} nodes are available: {why}." if total else "0/0 nodes are available: there is none yet."
    found = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    if found and (found.status, found.reason, found.message) == ("False", "Unschedulable", message):
        return []
    since = found.last_transition_time if found and found.status == "False" else rfc3339(now)
    said = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message=message, last_transition_time=since
    )
    conditions = [said, *(c for c in pod.status.conditions if c.type != "PodScheduled")]
    meta = pod.metadata
    # The version guards conditions that somebody else writes at this moment: a merge patch replaces the list.
    patch = {
        "metadata": {"resourceVersion": meta.resource_version},
        "status": {"conditions": [msgspec.to_builtins(condition) for condition in conditions]},
    }
    return [
        Patch(PODS, meta.namespace, meta.name, patch, "status"),
        event(_about(pod), "FailedScheduling", message, warning=True, now=rfc3339(now)),
    ]


def _about(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="v1")


def _waits(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in OURS
        and not pod.status.ended
    )


def _same_wish(before: Pod, after: Pod) -> bool:
    return before.metadata.uid == after.metadata.uid and before.spec == after.spec


def _owner(pod: Pod) -> str:
    owner = controller_of(pod)
    return owner.uid if owner else ""


def _offer(node: object) -> object:
    """What of a node decides about pods."""
    if not isinstance(node, Node):
        return None
    return node.metadata.labels, node.spec.unschedulable, node.spec.taints, node_ready(node)
