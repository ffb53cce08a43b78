"""The status of a Deployment: counts, and the conditions that `kubectl rollout status` waits for. Pure."""

from collections.abc import Sequence

import msgspec

from clusterip.controllers.deployment.limits import max_unavailable
from clusterip.controllers.deployment.sets import Sets
from clusterip.controllers.times import rfc3339, seconds
from clusterip.model.objects import Condition, Deployment, DeploymentStatus
from clusterip.model.status import Object

NO_DEADLINE = 2**31 - 1  # progressDeadlineSeconds that means: never

AVAILABLE, PROGRESSING = "Available", "Progressing"
DONE = "NewReplicaSetAvailable"


def status_of(deployment: Deployment, sets: Sets, now: float) -> DeploymentStatus:
    counts = _counts(deployment, sets)
    conditions = _with(deployment.status.conditions, _available(deployment, counts), now)
    progress = _progress(deployment, sets, counts, now)
    if progress is not None:
        moved = counts_differ(deployment.status, counts) and progress.reason == "ReplicaSetUpdated"
        conditions = _with(conditions, progress, now, moved=moved)
    return msgspec.structs.replace(counts, conditions=conditions)


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = deployment.spec.replicas
    return status.updated_replicas == status.replicas == status.available_replicas == wanted


def until_deadline(deployment: Deployment, status: DeploymentStatus, now: float) -> float | None:
    """Seconds until a rollout that stands still counts as failed; None when it cannot."""
    found = _find(status.conditions, PROGRESSING)
    limit = deployment.spec.progress_deadline_seconds
    if found is None or found.status != "True" or found.reason == DONE or limit >= NO_DEADLINE:
        return None
    return max(seconds(found.last_update_time) + limit - now, 0.0) + 0.1


def document(status: DeploymentStatus) -> Object:
    """Counts of zero are left out, as everywhere in the API."""
    conditions = [msgspec.to_builtins(condition) for condition in status.conditions]
    return {
        "observedGeneration": status.observed_generation,
        "replicas": status.replicas or None,
        "updatedReplicas": status.updated_replicas or None,
        "readyReplicas": status.ready_replicas or None,
        "availableReplicas": status.available_replicas or None,
        "unavailableReplicas": status.unavailable_replicas or None,
        "conditions": conditions,
    }


def _counts(deployment: Deployment, sets: Sets) -> DeploymentStatus:
    available = sum(rs.status.available_replicas for rs in sets.all)
    return DeploymentStatus(
        replicas=sum(rs.status.replicas for rs in sets.all),
        updated_replicas=sets.new.status.replicas if sets.new else 0,
        ready_replicas=sum(rs.status.ready_replicas for rs in sets.all),
        available_replicas=available,
        unavailable_replicas=max(sum(rs.spec.replicas for rs in sets.all) - available, 0),
        observed_generation=deployment.metadata.generation,
    )


def counts_differ(before: DeploymentStatus, after: DeploymentStatus) -> bool:
    """The rollout moved: more new ones, fewer old ones, or more that work."""
    return (
        after.updated_replicas > before.updated_replicas
        or after.replicas - after.updated_replicas < before.replicas - before.updated_replicas
        or after.ready_replicas > before.ready_replicas
        or after.available_replicas > before.available_replicas
    )


def _available(deployment: Deployment, counts: DeploymentStatus) -> Condition:
    if counts.available_replicas >= deployment.spec.replicas - max_unavailable(deployment):
        return _condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Enough pods are available.")
    message = "Too few pods are available."
    return _condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)


def _progress(deployment: Deployment, sets: Sets, counts: DeploymentStatus, now: float) -> Condition | None:
    """None: as it is."""
    found = _find(deployment.status.conditions, PROGRESSING)
    if deployment.spec.paused:
        return _condition(PROGRESSING, "Unknown", "DeploymentPaused", "Paused: it is scaled, but not rolled out.")
    if found is not None and found.reason == "DeploymentPaused":
        return _condition(PROGRESSING, "Unknown", "DeploymentResumed", "No longer paused.")
    if sets.new is None:
        return None
    name = sets.new.metadata.name
    if is_complete(deployment, counts):
        return _condition(PROGRESSING, "True", DONE, f'ReplicaSet "{name}" is complete.')
    if found is None:
        return _condition(PROGRESSING, "True", "NewReplicaSetCreated", f'ReplicaSet "{name}" was made.')
    if found.reason == DONE and name in found.message:
        return None  # pods come and go; the rollout as such is over
    if found.reason == DONE or counts_differ(deployment.status, counts) or found.reason == "DeploymentResumed":
        return _condition(PROGRESSING, "True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is under way.')
    limit = deployment.spec.progress_deadline_seconds
    if limit < NO_DEADLINE and seconds(found.last_update_time) + limit < now:
        message = f'ReplicaSet "{name}" has not moved for {limit} s.'
        return _condition(PROGRESSING, "False", "ProgressDeadlineExceeded", message)
    return None


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def _with(
    conditions: Sequence[Condition], wanted: Condition, now: float, *, moved: bool = False
) -> tuple[Condition, ...]:
    """`moved`: the condition is confirmed, its time of update is now."""
    found = _find(conditions, wanted.type)
    told = found and (found.status, found.reason, found.message) == (wanted.status, wanted.reason, wanted.message)
    if found and told and not moved:
        return tuple(conditions)
    since = found.last_transition_time if found and found.status == wanted.status else rfc3339(now)
    dated = msgspec.structs.replace(wanted, last_transition_time=since, last_update_time=rfc3339(now))
    return (*(c for c in conditions if c.type != wanted.type), dated)
