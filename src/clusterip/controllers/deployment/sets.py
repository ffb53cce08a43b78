"""The ReplicaSets of a Deployment: which is of its template now, what a new one looks like, which revision each is.
Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from clusterip.controllers.deployment.limits import max_surge
from clusterip.controllers.ownership import reference
from clusterip.controllers.times import seconds
from clusterip.controllers.writes import Create
from clusterip.model.naming import ALPHABET
from clusterip.model.objects import Deployment, PodTemplateSpec, ReplicaSet
from clusterip.model.resources import DEPLOYMENTS, REPLICA_SETS
from clusterip.model.status import Object

HASH = "pod-template-hash"
PREFIX = "deployment.kubernetes.io/"
REVISION, HISTORY = f"{PREFIX}revision", f"{PREFIX}revision-history"
DESIRED, MOST = f"{PREFIX}desired-replicas", f"{PREFIX}max-replicas"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Sets:
    """`new` is of the Deployment's template, None if there is none yet; `old` are the others, oldest first."""

    new: ReplicaSet | None
    old: tuple[ReplicaSet, ...]

    @property
    def all(self) -> tuple[ReplicaSet, ...]:
        return (*self.old, self.new) if self.new else self.old

    @property
    def active_old(self) -> tuple[ReplicaSet, ...]:
        return tuple(rs for rs in self.old if rs.spec.replicas > 0)


def sort_out(deployment: Deployment, found: Sequence[ReplicaSet]) -> Sets:
    in_order = sorted(found, key=lambda rs: (seconds(rs.metadata.creation_timestamp), rs.metadata.name))
    wanted = _content(deployment.spec.template)
    new = next((rs for rs in in_order if _content(rs.spec.template) == wanted), None)
    return Sets(new, tuple(rs for rs in in_order if rs is not new))


def revision(rs: ReplicaSet) -> int:
    text = rs.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def next_revision(sets: Sets) -> int:
    """Of the new ReplicaSet: behind all old ones; going back to an old template is going forward, too."""
    behind = max((revision(rs) for rs in sets.old), default=0) + 1
    return max(behind, revision(sets.new)) if sets.new else behind


def new_set(deployment: Deployment, sets: Sets, replicas: int) -> Create:
    template = deployment.spec.template
    digest = template_hash(template)
    labels = {**template.metadata.labels, HASH: digest}
    selector = deployment.spec.selector
    document: Object = {
        "metadata": {
            "name": f"{deployment.metadata.name}-{digest}",
            "namespace": deployment.metadata.namespace,
            "labels": labels,
            "annotations": annotations(deployment, sets),
            "ownerReferences": [reference(deployment, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": {
                "matchLabels": {**selector.match_labels, HASH: digest},
                **({"matchExpressions": msgspec.to_builtins(e)} if (e := selector.match_expressions) else {}),
            },
            "template": {
                "metadata": {**msgspec.to_builtins(template.metadata), "labels": labels},
                "spec": msgspec.json.decode(template.spec),
            },
        },
    }
    return Create(REPLICA_SETS, deployment.metadata.namespace, document)


def annotations(deployment: Deployment, sets: Sets) -> dict[str, str]:
    """That the new ReplicaSet is to carry."""
    wanted = str(next_revision(sets))
    held: Mapping[str, str] = sets.new.metadata.annotations if sets.new else {}
    made = {**held, **copied(deployment), REVISION: wanted, **sizes(deployment)}
    before = held.get(REVISION)
    if before and before != wanted:
        made[HISTORY] = ",".join(filter(None, (held.get(HISTORY), before)))
    return made


def copied(deployment: Deployment) -> dict[str, str]:
    """The Deployment's own annotations that its ReplicaSets repeat: kubernetes.io/change-cause among them."""
    return {
        key: value
        for key, value in deployment.metadata.annotations.items()
        if key != LAST_APPLIED and not key.startswith(PREFIX)
    }


def sizes(deployment: Deployment) -> dict[str, str]:
    """From these a later sync sees that the Deployment was scaled meanwhile."""
    return {
        DESIRED: str(deployment.spec.replicas),
        MOST: str(deployment.spec.replicas + max_surge(deployment)),
    }


def template_hash(template: PodTemplateSpec) -> str:
    content = msgspec.json.encode(_content(template), order="sorted")
    number = int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
    digits = []
    for _ in range(10):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(digits)


def _content(template: PodTemplateSpec) -> list[object]:
    """What makes two templates the same one."""
    meta = template.metadata
    labels = {key: value for key, value in meta.labels.items() if key != HASH}
    return [labels, meta.annotations, msgspec.json.decode(template.spec)]
