"""When the proxy says that somebody undoes its rules, and when no more."""

import uuid
from collections.abc import Iterator

import pytest

from clusterip.kernel import netns as namespaces
from clusterip.proxy.rivals import TIMES, WITHIN, Rivals

pytestmark = pytest.mark.kernel


@pytest.fixture
def rivals() -> Iterator[Rivals]:
    name = f"rivals-{uuid.uuid4().hex[:8]}"
    namespaces.create(name)
    made = Rivals(name)
    yield made
    made.close()
    namespaces.delete(name)


def test_a_few_repairs_shortly_after_each_other_are_told_once(rivals: Rivals) -> None:
    assert [rivals.looked(100.0 + n, disturbed=True) for n in range(TIMES + 1)] == [*[False] * (TIMES - 1), True, False]
    assert "another proxy" in rivals.complaint


def test_rare_repairs_are_accidents(rivals: Rivals) -> None:
    assert not any(rivals.looked(100.0 + n * WITHIN, disturbed=True) for n in range(10))
    assert rivals.complaint == ""


def test_after_a_while_without_a_repair_there_is_no_complaint_any_more(rivals: Rivals) -> None:
    for n in range(TIMES):
        rivals.looked(100.0 + n, disturbed=True)
    rivals.looked(103.0, disturbed=False)
    assert rivals.complaint != ""
    rivals.looked(104.0 + WITHIN, disturbed=False)
    assert rivals.complaint == ""
    assert not rivals.looked(105.0 + WITHIN, disturbed=True)
