"""The rows of pods and nodes. A pod's STATUS is one word for phase, conditions and containers together."""

from dataclasses import dataclass

from clusterip.model.ages import since
from clusterip.model.columns import NONE, Cells, Layout, columns
from clusterip.model.objects.pod import ENDED
from clusterip.model.status import Object

_ROLE = "node-role.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class PodSummary:
    word: str  # Running, Completed, CrashLoopBackOff, Init:0/1, Terminating ...
    ready: int  # containers that are ready, sidecars included
    total: int
    restarts: int
    last_restart: str  # timestamp; "" if none


class _Tally:
    """What the containers' statuses add up to."""

    def __init__(self) -> None:
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""

    def restarted(self, status: Object) -> None:
        self.restarts += status.get("restartCount", 0)
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.last_restart = max(self.last_restart, finished)  # RFC 3339 in UTC sorts by time


def summary(obj: Object) -> PodSummary:
    """The word and the counts that `kubectl get pods` shows for one pod."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    sidecars = {c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(sidecars)
    word = status.get("reason") or status.get("phase") or ""
    if _condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    during, after = _Tally(), _Tally()
    starting = _init_word(spec, status, sidecars, (during, after))
    tally = during
    if not starting or _condition(status, "Initialized").get("status") == "True":
        tally = after
        word = _container_word(status, starting or word, after)
    else:
        word = starting
    word = _deletion_word(obj, status) or word
    return PodSummary(word, tally.ready, total, tally.restarts, tally.last_restart)


def _init_word(spec: Object, status: Object, sidecars: set[str], tallies: tuple[_Tally, _Tally]) -> str:
    """What the first unfinished init container is about; "" when all are through.

    The first tally counts all of them (what is shown while they run), the second the sidecars (shown ever after).
    """
    during, after = tallies
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        sidecar = one.get("name") in sidecars
        during.restarted(one)
        if sidecar:
            after.restarted(one)
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and one.get("started"):
            during.ready += bool(one.get("ready"))
            after.ready += bool(one.get("ready"))
            continue
        if ended is not None:
            return f"Init:{_ending(ended)}"
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(spec.get('initContainers') or ())}"
    return ""


def _container_word(status: Object, word: str, tally: _Tally) -> str:
    """The first container that is not simply running decides."""
    running = False
    for one in reversed(status.get("containerStatuses") or ()):
        tally.restarted(one)
        state = one.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting:
            word = waiting
        elif state.get("terminated") is not None:
            word = _ending(state["terminated"])
        elif one.get("ready") and state.get("running") is not None:
            running = True
            tally.ready += 1
    if word == "Completed" and running:
        return "Running" if _condition(status, "Ready").get("status") == "True" else "NotReady"
    return word


def _ending(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _deletion_word(obj: Object, status: Object) -> str:
    if not obj["metadata"].get("deletionTimestamp"):
        return ""
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return "" if status.get("phase") in ENDED else "Terminating"


def _condition(status: Object, kind: str) -> Object:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})


def _pod(obj: Object, now: float) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    seen = summary(obj)
    ago = f" ({since(seen.last_restart, now)} ago)" if seen.restarts and seen.last_restart else ""
    addresses = status.get("podIPs") or [{"ip": status.get("podIP", "")}]
    return [
        obj["metadata"].get("name", ""),
        f"{seen.ready}/{seen.total}",
        seen.word,
        f"{seen.restarts}{ago}",
        since(obj["metadata"].get("creationTimestamp"), now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or ()
    met = sum(_condition(status, gate.get("conditionType", "")).get("status") == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else NONE


def _node(obj: Object, now: float) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    about = status.get("nodeInfo") or {}
    ready = _condition(status, "Ready")
    word = {"True": "Ready"}.get(ready.get("status", ""), "NotReady") if ready else "Unknown"
    return [
        obj["metadata"].get("name", ""),
        word + (",SchedulingDisabled" if spec.get("unschedulable") else ""),
        _roles(obj["metadata"].get("labels") or {}),
        since(obj["metadata"].get("creationTimestamp"), now),
        about.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        about.get("osImage") or "<unknown>",
        about.get("kernelVersion") or "<unknown>",
        about.get("containerRuntimeVersion") or "<unknown>",
    ]


def _roles(labels: dict[str, str]) -> str:
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(status: Object, kind: str) -> str:
    return next((a.get("address", "") for a in status.get("addresses") or () if a.get("type") == kind), NONE)


POD = Layout(
    columns(
        "Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates",
    ),
    _pod,
)  # fmt: skip
NODE = Layout(
    columns(
        "Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version",
        "+Container-Runtime",
    ),
    _node,
)  # fmt: skip
