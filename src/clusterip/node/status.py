"""The status of a pod: what follows from how its containers are. Pure.

Source: Kubernetes docs, "Pod Lifecycle".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from clusterip.model.objects import (
    Condition,
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
)
from clusterip.model.status import Object

OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
STEADY = 600.0  # seconds a container must have run for its next failure to count as the first


@dataclass(frozen=True, slots=True)
class Facts:
    """What the agent knows of a pod that runs here."""

    host_ips: tuple[str, ...]  # the primary one first, as below
    start_time: str  # when the agent took the pod on
    pod_ips: tuple[str, ...] = ()  # (): it has no network yet
    containers: Mapping[str, ContainerStatus] = field(default_factory=lambda: MappingProxyType({}))  # init ones too
    over: bool = False  # nothing of it runs, or ever will


def rfc3339(seconds: float) -> str:
    """Seconds since 1970 as the API writes times: "2026-11-30T12:00:00Z"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_sidecar(container: Container) -> bool:
    """Of an init container: it goes on running beside the others."""
    return container.restart_policy == "Always"


def restarts(policy: str, container: Container, init: bool, code: int) -> bool:
    """Whether a container that ended with `code` is to be started again."""
    if is_sidecar(container):
        return True
    if code == 0:
        return policy == "Always" and not init
    return policy != "Never"


def back_off(failures: int, first: float, most: float) -> float:
    """Seconds before a container is started again that has ended `failures` times in a row: none for the first, then
    doubling."""
    return 0.0 if failures <= 1 else float(min(first * 2 ** min(failures - 2, 30), most))


def waiting(reason: str, message: str = "") -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


def fresh(container: Container, reason: str) -> ContainerStatus:
    """Of a container that has never been started."""
    return ContainerStatus(name=container.name, image=container.image, started=False, state=waiting(reason))


def _status_of(facts: Facts, pod: Pod, container: Container) -> ContainerStatus:
    known = facts.containers.get(container.name)
    return known or fresh(container, "PodInitializing" if pod.spec.init_containers else "ContainerCreating")


def after_restart(status: ContainerStatus, now: str) -> ContainerStatus:
    """Of a container whose agent was restarted, which ended all that ran. `now`: RFC 3339."""
    if status.state.running is None:
        return status
    end = ContainerStateTerminated(
        exit_code=137,
        reason="ContainerStatusUnknown",
        message="The container ended when the node agent did",
        started_at=status.state.running.started_at,
        finished_at=now,
    )
    return msgspec.structs.replace(status, state=ContainerState(terminated=end), ready=False, started=False)


def _ended(status: ContainerStatus) -> ContainerStateTerminated | None:
    """How it last ended, unless it runs."""
    if status.state.running:
        return None
    return status.state.terminated or status.last_state.terminated


def initialized(facts: Facts, pod: Pod) -> bool:
    """Every init container has done its work, which of a sidecar is to have started. It stays so once a container
    that comes after them has run, whatever becomes of a sidecar."""
    return not _uninitialized(facts, pod)


def _uninitialized(facts: Facts, pod: Pod) -> list[str]:
    later = (_status_of(facts, pod, c) for c in pod.spec.containers)
    if any(s.state.running or s.state.terminated or s.last_state.terminated for s in later):
        return []
    return [c.name for c in pod.spec.init_containers if not _did_its_work(facts, pod, c)]


def _did_its_work(facts: Facts, pod: Pod, init: Container) -> bool:
    status = _status_of(facts, pod, init)
    end = status.state.terminated
    return bool(status.started) if is_sidecar(init) else end is not None and end.exit_code == 0


def phase(facts: Facts, pod: Pod) -> str:
    policy = pod.spec.restart_policy
    ready_to_run = initialized(facts, pod)
    if not ready_to_run and not facts.over:
        return "Pending"
    statuses = [_status_of(facts, pod, c) for c in pod.spec.containers]
    ends = [_ended(status) for status in statuses]
    succeeded = ready_to_run and all(end and end.exit_code == 0 for end in ends)
    if facts.over:
        return "Succeeded" if succeeded else "Failed"
    if any(status.state.waiting and not end for status, end in zip(statuses, ends, strict=True)):
        return "Pending"
    sidecars = (_status_of(facts, pod, c) for c in pod.spec.init_containers if is_sidecar(c))
    if policy == "Always" or any(status.state.running for status in (*statuses, *sidecars)):
        return "Running"
    if succeeded:
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def conditions(facts: Facts, pod: Pod, now: str) -> tuple[Condition, ...]:
    """Ours, with the time of their last change taken from the pod's present ones where nothing changed."""
    current = phase(facts, pod)
    unready = [s.name for s in _long_running(facts, pod) if not s.ready]
    gates = _closed_gates(pod)
    match current:
        case "Succeeded":
            reason, message = "PodCompleted", ""
        case "Failed":
            reason, message = "PodFailed", ""
        case _ if unready:
            reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
        case _:
            reason, message = "", ""
    containers_ready = _condition("ContainersReady", not reason, reason, message)
    ready = _condition("Ready", not reason, reason, message)
    if not reason and gates:
        ready = _condition("Ready", False, "ReadinessGatesNotReady", "; ".join(gates))
    lacking = _uninitialized(facts, pod)
    incomplete = f"containers with incomplete status: [{' '.join(lacking)}]" if lacking else ""
    made = (
        _condition("PodReadyToStartContainers", bool(facts.pod_ips) and not facts.over),
        _condition("Initialized", not lacking, "ContainersNotInitialized" if lacking else "", incomplete),
        ready,
        containers_ready,
        _condition("PodScheduled", True),
    )
    before = {c.type: c for c in pod.status.conditions}
    return tuple(_dated(condition, before.get(condition.type), now) for condition in made)


def _long_running(facts: Facts, pod: Pod) -> Iterable[ContainerStatus]:
    sidecars = tuple(c for c in pod.spec.init_containers if is_sidecar(c))
    return (_status_of(facts, pod, c) for c in (*sidecars, *pod.spec.containers))


def _closed_gates(pod: Pod) -> list[str]:
    known = {c.type: c.status for c in pod.status.conditions}
    said = []
    for gate in pod.spec.readiness_gates:
        kind = gate.condition_type
        if kind not in known:
            said.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif known[kind] != "True":
            said.append(f'the status of pod readiness gate "{kind}" is not "True", but {known[kind]}')
    return said


def _condition(kind: str, holds: bool, reason: str = "", message: str = "") -> Condition:
    return Condition(type=kind, status="True" if holds else "False", reason=reason, message=message)


def _dated(condition: Condition, before: Condition | None, now: str) -> Condition:
    same = before is not None and before.status == condition.status
    since = before.last_transition_time if same and before is not None else None
    return msgspec.structs.replace(condition, last_transition_time=since or now)


def document(facts: Facts, pod: Pod, conditions: Iterable[Condition]) -> Object:
    """The status as the agent writes it, for a strategic merge patch: the conditions of others are left alone."""
    spec = pod.spec
    return {
        "phase": phase(facts, pod),
        "conditions": [_condition_document(c) for c in conditions],
        "hostIP": facts.host_ips[0],
        "hostIPs": [{"$patch": "replace"}, *({"ip": address} for address in facts.host_ips)],
        "podIP": facts.pod_ips[0] if facts.pod_ips else None,
        "podIPs": [{"$patch": "replace"}, *({"ip": address} for address in facts.pod_ips)],
        "startTime": facts.start_time,
        "containerStatuses": [_container_document(_status_of(facts, pod, c)) for c in spec.containers],
        "initContainerStatuses": [_container_document(_status_of(facts, pod, c)) for c in spec.init_containers] or None,
    }


def _condition_document(condition: Condition) -> Object:
    """Every field said: one that is not said would keep its old value."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or None,
        "message": condition.message or None,
        "lastProbeTime": None,
        "lastTransitionTime": condition.last_transition_time,
    }


def _container_document(status: ContainerStatus) -> Object:
    """With the fields that the API requires of it, also where they are empty."""
    required = {"ready": False, "restartCount": 0, "image": "", "imageID": "", "state": {}, "lastState": {}}
    made: Object = {**required, **msgspec.to_builtins(status)}
    if (end := made["state"].get("terminated")) is not None:
        end.setdefault("exitCode", 0)
    if (end := made["lastState"].get("terminated")) is not None:
        end.setdefault("exitCode", 0)
    return made
