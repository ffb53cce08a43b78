import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model.objects import Probe
from clusterip.node.probe import (
    FIRST_LOOK,
    SETTLING,
    Kind,
    Verdict,
    after,
    counts,
    delay,
    failed_for_good,
    first_delay,
    initial,
)


def verdicts(probe: Probe, kind: Kind, results: str) -> str:
    """What counts after each of `results`; "+" is a success or true, "-" the contrary."""
    verdict, seen = initial(kind), ""
    for result in results:
        verdict = after(probe, verdict, result == "+")
        seen += "+" if verdict.ok else "-"
    return seen


@pytest.mark.parametrize(
    ("kind", "success", "failure", "results", "expected"),
    [
        (Kind.READINESS, 1, 3, "-+--+---+", "-++++" + "++-+"),
        (Kind.READINESS, 2, 1, "+-++-+", "---+--"),
        (Kind.LIVENESS, 1, 2, "-+--", "+++-"),
        (Kind.STARTUP, 1, 3, "--+", "--+"),
        (Kind.READINESS, 0, 0, "+-", "+-"),
    ],
)
def test_as_many_in_a_row_as_the_threshold_change_the_verdict(
    kind: Kind, success: int, failure: int, results: str, expected: str
) -> None:
    assert verdicts(Probe(success_threshold=success, failure_threshold=failure), kind, results) == expected


@given(st.lists(st.booleans()), st.integers(1, 4), st.integers(1, 4))
def test_the_verdict_is_that_of_the_last_row_that_was_long_enough(
    results: list[bool], success: int, failure: int
) -> None:
    probe = Probe(success_threshold=success, failure_threshold=failure)
    verdict, expected, row = initial(Kind.READINESS), False, 0
    for before, ok in zip([None, *results], results, strict=False):
        verdict = after(probe, verdict, ok)
        row = row + 1 if ok == before else 1
        if row >= (success if ok else failure):
            expected = ok
        assert verdict.ok == expected


def test_a_container_is_killed_after_as_many_failures_as_the_threshold_says() -> None:
    probe = Probe(failure_threshold=2)
    once = after(probe, initial(Kind.STARTUP), False)
    assert not failed_for_good(probe, once)
    assert failed_for_good(probe, after(probe, once, False))
    assert not failed_for_good(probe, after(probe, once, True))


def test_only_a_container_that_was_never_ready_is_looked_at_more_often() -> None:
    probe = Probe(period_seconds=5)
    verdict, delays = initial(Kind.READINESS), []
    for failures in range(1, 10):
        verdict = after(probe, verdict, False)
        delays.append(delay(probe, Kind.READINESS, verdict, failures))
    assert delays[:3] == [FIRST_LOOK, FIRST_LOOK * 2, FIRST_LOOK * 4]
    assert delays[-1] == 5.0
    ready = after(probe, verdict, True)
    assert delay(probe, Kind.READINESS, ready, 9) == 5.0
    assert delay(probe, Kind.READINESS, after(probe, ready, False), 10) == 5.0


@pytest.mark.parametrize("kind", [Kind.LIVENESS, Kind.STARTUP])
def test_failures_that_count_are_a_period_apart(kind: Kind) -> None:
    assert delay(Probe(period_seconds=7), kind, Verdict(ok=False, streak=-1), 1) == 7.0


def test_a_startup_probe_looks_often_and_counts_no_failure_while_the_container_settles() -> None:
    probe = Probe(period_seconds=7, failure_threshold=1)
    assert not counts(Kind.STARTUP, False, SETTLING / 2)
    assert delay(probe, Kind.STARTUP, initial(Kind.STARTUP), 1) == FIRST_LOOK
    assert counts(Kind.STARTUP, False, SETTLING)
    assert counts(Kind.STARTUP, True, 0.0)
    assert counts(Kind.READINESS, False, 0.0)


@pytest.mark.parametrize(
    ("kind", "initial_delay", "expected"),
    [(Kind.READINESS, 0, 0.0), (Kind.STARTUP, 3, 3.0), (Kind.LIVENESS, 0, SETTLING), (Kind.LIVENESS, 3, 3.0)],
)
def test_a_liveness_probe_leaves_a_container_time_to_settle(kind: Kind, initial_delay: int, expected: float) -> None:
    assert first_delay(Probe(initial_delay_seconds=initial_delay), kind) == expected
