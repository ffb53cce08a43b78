"""A port that a Service has and that is translated for some clients, or none, is said to lack rules."""

from fractions import Fraction

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, ask, filtered
from tests.diagnosis.clothes import BOTH, ONE_SLICE, WEB_RULES
from tests.diagnosis.dumps import chain_suffix, ready, service, slice_of
from tests.diagnosis.own import USUAL, WEB, ruleset

OBJECTS = service("web", "10.96.0.20") + BOTH
CHOOSES = f"KUBE-SVC-{chain_suffix('default/webtcp')}"
OWN = ruleset(WEB, config=USUAL)
HALF, ALL = Fraction(1, 2), Fraction(1)


def without(text: str, *lines: str) -> str:
    assert all(line in text for line in lines)
    return "\n".join(line for line in text.split("\n") if not any(lost in line for lost in lines))


LAST = f'-A {CHOOSES} -m comment --comment "default/web -> 10.244.2.6:80"'


@pytest.mark.parametrize(
    ("rules", "share"),
    [
        (without(WEB_RULES, LAST), HALF),
        (without(WEB_RULES, f"-A {CHOOSES}"), ALL),
        (without(WEB_RULES, "-j DNAT --to-destination 10.244.2.6:80"), HALF),
        (without(WEB_RULES, f"-j {CHOOSES}"), ALL),
        (OWN.replace("10.96.0.20 . tcp . 80 . 0", "10.96.0.77 . tcp . 80 . 0"), HALF),
        (OWN.replace("10.96.0.20 . tcp . 80 comment", "10.96.0.77 . tcp . 80 comment"), ALL),
    ],
)
def test_a_port_that_is_not_translated_lacks_rules(rules: str, share: Fraction) -> None:
    assert rules not in (WEB_RULES, OWN)
    found = [f for f in ask(rules, OBJECTS, ADDRESSES, ROUTES).findings if f.level == "E"]
    assert [(f.id, f.share) for f in found] == [("missing-endpoint", share)]


def test_whole_rules_lack_nothing() -> None:
    for rules in (WEB_RULES, OWN):
        assert [f.id for f in ask(rules, OBJECTS, ADDRESSES, ROUTES).findings if f.level == "E"] == []


def test_a_service_that_has_no_backends_lacks_no_rule() -> None:
    none = service("web", "10.96.0.20") + slice_of("web", ready("10.244.1.5").replace("true", "false"))
    emptied = without(WEB_RULES, CHOOSES)
    assert "missing-endpoint" not in {f.id for f in ask(emptied, none, ADDRESSES, ROUTES).findings}


def test_rules_that_were_not_given_are_not_missing() -> None:
    given = (filtered("FORWARD -j ACCEPT"), service("web", "10.96.0.20") + ONE_SLICE, ADDRESSES, ROUTES)
    assert "missing-endpoint" not in {f.id for f in ask(*given).findings}
