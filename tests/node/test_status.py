from dataclasses import replace

import msgspec
import pytest

from clusterip.model.objects import (
    Condition,
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodReadinessGate,
    PodSpec,
    PodStatus,
)
from clusterip.node import status
from clusterip.node.status import Facts, back_off, conditions, document, initialized, phase, restarts

NOW = "2026-11-30T12:00:00Z"
LATER = "2026-11-30T12:00:09Z"
RUNNING = ContainerState(running=ContainerStateRunning(started_at=NOW))
CRASHED = status.waiting("CrashLoopBackOff")


def ended(code: int) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code))


def known(name: str, state: ContainerState, **more: object) -> ContainerStatus:
    return msgspec.structs.replace(ContainerStatus(name=name, state=state), **more)


def pod(*names: str, policy: str = "Always", init: tuple[Container, ...] = (), **more: object) -> Pod:
    spec = PodSpec(
        containers=tuple(Container(name=name) for name in names), init_containers=init, restart_policy=policy
    )
    return Pod(metadata=ObjectMeta(name="web"), spec=msgspec.structs.replace(spec, **more))


def facts(*statuses: ContainerStatus, over: bool = False) -> Facts:
    return Facts(
        ("192.168.50.11", "fd00:50::11"), NOW, ("10.244.1.7", "fd00:1:1::7"), {s.name: s for s in statuses}, over
    )


SIDECAR = Container(name="side", restart_policy="Always")
INIT = Container(name="init")


@pytest.mark.parametrize(
    ("policy", "states", "over", "expected"),
    [
        ("Always", [], False, "Pending"),
        ("Always", [RUNNING], False, "Pending"),  # the second has not been started
        ("Always", [RUNNING, RUNNING], False, "Running"),
        ("Always", [RUNNING, ended(1)], False, "Running"),
        ("Always", [ended(0), ended(0)], False, "Running"),
        ("Never", [RUNNING, ended(1)], False, "Running"),
        ("Never", [ended(0), ended(0)], False, "Succeeded"),
        ("Never", [ended(0), ended(1)], False, "Failed"),
        ("OnFailure", [ended(0), ended(1)], False, "Running"),
        ("OnFailure", [ended(0), ended(0)], False, "Succeeded"),
        ("Always", [ended(0), ended(0)], True, "Succeeded"),
        ("Always", [ended(0), ended(137)], True, "Failed"),
        ("Always", [], True, "Failed"),
    ],
)
def test_the_phase_follows_from_the_containers(
    policy: str, states: list[ContainerState], over: bool, expected: str
) -> None:
    statuses = [known(name, state) for name, state in zip("ab", states, strict=False)]
    assert phase(facts(*statuses, over=over), pod("a", "b", policy=policy)) == expected


def test_a_container_that_waits_after_a_crash_keeps_the_pod_running() -> None:
    crashed = known("a", CRASHED, last_state=ended(1))
    assert phase(facts(crashed), pod("a")) == "Running"
    assert phase(facts(known("a", status.waiting("ErrImageNotMapped"))), pod("a")) == "Pending"


@pytest.mark.parametrize(
    ("init", "known_init", "expected"),
    [
        (INIT, known("init", RUNNING), False),
        (INIT, known("init", ended(1)), False),
        (INIT, known("init", ended(0)), True),
        (SIDECAR, known("side", RUNNING, started=False), False),
        (SIDECAR, known("side", RUNNING, started=True), True),
    ],
)
def test_init_containers_must_end_well_and_sidecars_start(
    init: Container, known_init: ContainerStatus, expected: bool
) -> None:
    seen, given = facts(known_init), pod("a", init=(init,))
    assert initialized(seen, given) is expected
    assert phase(seen, given) == "Pending"


def test_a_pod_whose_containers_have_run_stays_initialized_when_its_sidecar_ends() -> None:
    seen = facts(known("side", ended(0)), known("a", ended(0)), over=True)
    given = pod("a", init=(SIDECAR,), policy="Never")
    assert initialized(seen, given)
    assert phase(seen, given) == "Succeeded"


def test_a_pod_runs_as_long_as_a_sidecar_does() -> None:
    seen = facts(known("side", RUNNING, started=True), known("a", ended(0)))
    assert phase(seen, pod("a", init=(SIDECAR,), policy="Never")) == "Running"


def of(kind: str, made: tuple[Condition, ...]) -> Condition:
    return next(c for c in made if c.type == kind)


def test_a_pod_is_ready_when_every_container_is() -> None:
    given = pod("a", "b")
    half = conditions(facts(known("a", RUNNING, ready=True), known("b", RUNNING)), given, NOW)
    assert of("Ready", half).status == of("ContainersReady", half).status == "False"
    assert of("Ready", half).message == "containers with unready status: [b]"
    whole = conditions(facts(known("a", RUNNING, ready=True), known("b", RUNNING, ready=True)), given, NOW)
    assert of("Ready", whole).status == of("ContainersReady", whole).status == "True"


def test_a_sidecar_must_be_ready_too() -> None:
    seen = facts(known("side", RUNNING, started=True), known("a", RUNNING, ready=True))
    assert of("Ready", conditions(seen, pod("a", init=(SIDECAR,)), NOW)).message.endswith("[side]")


@pytest.mark.parametrize(
    ("gate", "ready", "message"),
    [
        (None, "False", 'corresponding condition of pod readiness gate "lb/ok" does not exist.'),
        ("False", "False", 'the status of pod readiness gate "lb/ok" is not "True", but False'),
        ("True", "True", ""),
    ],
)
def test_a_readiness_gate_must_be_open(gate: str | None, ready: str, message: str) -> None:
    given = pod("a", readiness_gates=(PodReadinessGate(condition_type="lb/ok"),))
    if gate:
        theirs = PodStatus(conditions=(Condition(type="lb/ok", status=gate),))
        given = msgspec.structs.replace(given, status=theirs)
    made = conditions(facts(known("a", RUNNING, ready=True)), given, NOW)
    assert (of("Ready", made).status, of("Ready", made).message) == (ready, message)
    assert of("ContainersReady", made).status == "True"


def test_the_end_of_a_pod_is_the_reason_that_it_is_not_ready() -> None:
    made = conditions(facts(known("a", ended(0)), over=True), pod("a"), NOW)
    assert of("Ready", made).reason == of("ContainersReady", made).reason == "PodCompleted"
    assert of("PodReadyToStartContainers", made).status == "False"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    given = pod("a")
    first = conditions(facts(known("a", RUNNING, ready=True)), given, NOW)
    after = msgspec.structs.replace(given, status=PodStatus(conditions=first))
    assert conditions(facts(known("a", RUNNING, ready=True)), after, LATER) == first
    unready = conditions(facts(known("a", RUNNING)), after, LATER)
    assert of("Ready", unready).last_transition_time == LATER
    assert of("Initialized", unready).last_transition_time == NOW


def test_the_document_says_what_the_api_requires_also_where_it_is_empty() -> None:
    given = pod("a", "b", init=(INIT,))
    seen = facts(known("a", ended(0), last_state=ended(0)))
    made = document(seen, given, conditions(seen, given, NOW))
    assert made["containerStatuses"][0] == {
        "name": "a",
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        "state": {"terminated": {"exitCode": 0}},
        "lastState": {"terminated": {"exitCode": 0}},
    }
    assert made["containerStatuses"][1]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert made["initContainerStatuses"][0]["name"] == "init"
    assert (made["podIP"], made["hostIP"]) == ("10.244.1.7", "192.168.50.11")
    assert made["podIPs"] == [{"$patch": "replace"}, {"ip": "10.244.1.7"}, {"ip": "fd00:1:1::7"}]
    assert made["hostIPs"] == [{"$patch": "replace"}, {"ip": "192.168.50.11"}, {"ip": "fd00:50::11"}]
    placeless = document(replace(seen, pod_ips=()), pod("a"), ())
    assert (placeless["podIP"], placeless["podIPs"]) == (None, [{"$patch": "replace"}])


@pytest.mark.parametrize(
    ("policy", "container", "init", "code", "expected"),
    [
        ("Always", Container(name="a"), False, 0, True),
        ("Always", Container(name="a"), False, 1, True),
        ("OnFailure", Container(name="a"), False, 0, False),
        ("OnFailure", Container(name="a"), False, 1, True),
        ("Never", Container(name="a"), False, 1, False),
        ("Always", INIT, True, 0, False),
        ("Always", INIT, True, 1, True),
        ("Never", INIT, True, 1, False),
        ("Never", SIDECAR, True, 0, True),
    ],
)
def test_the_restart_policy_decides(policy: str, container: Container, init: bool, code: int, expected: bool) -> None:
    assert restarts(policy, container, init, code) is expected


def test_the_first_restart_is_at_once_and_the_next_wait_longer_and_longer() -> None:
    assert [back_off(n, 10.0, 300.0) for n in range(8)] == [0, 0, 10, 20, 40, 80, 160, 300]
    assert back_off(10_000, 10.0, 300.0) == 300


def test_what_ran_when_the_agent_ended_has_ended_too() -> None:
    after = status.after_restart(known("a", RUNNING, ready=True, started=True, restart_count=2), LATER)
    end = after.state.terminated
    assert end is not None
    assert (end.exit_code, end.reason, end.started_at, end.finished_at) == (137, "ContainerStatusUnknown", NOW, LATER)
    assert (after.ready, after.restart_count) == (False, 2)
    assert status.after_restart(known("a", ended(1)), LATER) == known("a", ended(1))
