"""One row for each entry of the dual-stack table (conformance 2.8): what policy and families come out."""

from typing import Any

import pytest

from clusterip.model import defaults, validation
from clusterip.model.resources import SERVICES
from clusterip.model.service_update import carry_over, infer_families
from clusterip.model.status import Cause, Object

SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
V4, V6 = "IPv4", "IPv6"
ADDRESS4, ADDRESS6 = "10.96.0.20", "fd00:96::20"
HEADLESS = {"clusterIP": "None"}
ONLY_V4, DUAL, DUAL_V6_FIRST = (V4,), (V4, V6), (V6, V4)


def service(**spec: Any) -> Object:
    return {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}}


def settled(obj: Object, cluster: tuple[str, ...], old: Object | None = None) -> list[Cause]:
    defaults.apply(SERVICES, obj)
    carry_over(obj, old)
    return infer_families(obj, old, cluster)


def stored(**spec: Any) -> Object:
    """A Service as the store has it: settled, with its addresses."""
    obj = service(**spec)
    settled(obj, DUAL)
    return obj


@pytest.mark.parametrize(
    ("spec", "cluster", "policy", "families"),
    [
        pytest.param({}, ONLY_V4, SINGLE, [V4], id="D1"),
        pytest.param({}, DUAL_V6_FIRST, SINGLE, [V6], id="D1-primary"),
        pytest.param({**HEADLESS, "selector": {}}, ONLY_V4, REQUIRE, [V4, V6], id="D2"),
        pytest.param({**HEADLESS, "selector": {}}, DUAL_V6_FIRST, REQUIRE, [V6, V4], id="D2-primary"),
        pytest.param(HEADLESS, DUAL, SINGLE, [V4], id="D3"),
        pytest.param({"ipFamilyPolicy": SINGLE, "ipFamilies": [V6]}, DUAL, SINGLE, [V6], id="D4"),
        pytest.param({"ipFamilyPolicy": PREFER}, DUAL, PREFER, [V4, V6], id="D5"),
        pytest.param({"ipFamilyPolicy": PREFER, "ipFamilies": [V6]}, DUAL, PREFER, [V6, V4], id="D5-order"),
        pytest.param({"ipFamilyPolicy": PREFER}, ONLY_V4, PREFER, [V4], id="D6"),
        pytest.param({"ipFamilyPolicy": REQUIRE}, DUAL_V6_FIRST, REQUIRE, [V6, V4], id="D7"),
        pytest.param(
            {"clusterIP": ADDRESS6, "clusterIPs": [ADDRESS6, ADDRESS4], "ipFamilyPolicy": REQUIRE},
            DUAL,
            REQUIRE,
            [V6, V4],
            id="D9",
        ),
        pytest.param({"clusterIP": ADDRESS6}, DUAL, SINGLE, [V6], id="D9-singular"),
        pytest.param(
            {**HEADLESS, "ipFamilyPolicy": REQUIRE, "ipFamilies": [V6, V4]}, DUAL, REQUIRE, [V6, V4], id="D19"
        ),
    ],
)
def test_creation_settles(spec: Object, cluster: tuple[str, ...], policy: str, families: list[str]) -> None:
    obj = service(**spec)
    assert settled(obj, cluster) == []
    assert (obj["spec"]["ipFamilyPolicy"], obj["spec"]["ipFamilies"]) == (policy, families)


@pytest.mark.parametrize(
    ("spec", "cluster", "field", "fragment"),
    [
        pytest.param({"ipFamilies": [V6]}, ONLY_V4, "spec.ipFamilies[0]", "not configured on this cluster", id="D4"),
        pytest.param(
            {"ipFamilyPolicy": REQUIRE},
            ONLY_V4,
            "spec.ipFamilyPolicy",
            "this cluster is not configured for dual-stack services",
            id="D8",
        ),
        pytest.param({"clusterIP": ADDRESS6}, ONLY_V4, "spec.clusterIPs[0]", "not configured", id="D9"),
        pytest.param({"ipFamilies": [V4, V6]}, DUAL, "spec.ipFamilyPolicy", "ipFamilies", id="D10-families"),
        pytest.param(
            {"clusterIP": ADDRESS4, "clusterIPs": [ADDRESS4, ADDRESS6], "ipFamilyPolicy": SINGLE},
            DUAL,
            "spec.ipFamilyPolicy",
            "clusterIPs",
            id="D10-addresses",
        ),
    ],
)
def test_creation_is_refused(spec: Object, cluster: tuple[str, ...], field: str, fragment: str) -> None:
    (cause,) = settled(service(**spec), cluster)
    assert (cause.field, cause.reason) == (field, "FieldValueInvalid")
    assert fragment in cause.message


def test_d11_an_address_must_be_of_the_family_in_its_place() -> None:
    obj = service(clusterIP=ADDRESS4, clusterIPs=[ADDRESS4, ADDRESS6], ipFamilies=[V6, V4], ipFamilyPolicy=REQUIRE)
    assert settled(obj, DUAL) == []
    assert [cause.field for cause in validation.validate_create(SERVICES, obj)] == [
        "spec.clusterIPs[0]",
        "spec.clusterIPs[1]",
    ]


ONE = stored(clusterIP=ADDRESS4)
TWO = stored(clusterIP=ADDRESS4, clusterIPs=[ADDRESS4, ADDRESS6], ipFamilyPolicy=PREFER)
PREFERS_ONE = stored(clusterIP=ADDRESS4, ipFamilies=[V4], ipFamilyPolicy=SINGLE)
PREFERS_ONE["spec"]["ipFamilyPolicy"] = PREFER  # stored while the cluster had one family
LONE_HEADLESS = stored(**HEADLESS)


@pytest.mark.parametrize(
    ("old", "spec", "policy", "families", "addresses"),
    [
        pytest.param(TWO, {}, PREFER, [V4, V6], [ADDRESS4, ADDRESS6], id="D12"),
        pytest.param(ONE, {"ipFamilyPolicy": PREFER}, PREFER, [V4, V6], [ADDRESS4], id="D13"),
        pytest.param(ONE, {"ipFamilyPolicy": REQUIRE}, REQUIRE, [V4, V6], [ADDRESS4], id="D13-require"),
        pytest.param(
            ONE,
            {"ipFamilyPolicy": REQUIRE, "clusterIP": ADDRESS4, "clusterIPs": [ADDRESS4, ADDRESS6]},
            REQUIRE,
            [V4, V6],
            [ADDRESS4, ADDRESS6],
            id="D13-requested",
        ),
        pytest.param(TWO, {"ipFamilyPolicy": SINGLE}, SINGLE, [V4], [ADDRESS4], id="D14"),
        pytest.param(
            TWO,
            {"ipFamilyPolicy": SINGLE, "clusterIPs": [ADDRESS4, ADDRESS6], "ipFamilies": [V4, V6]},
            SINGLE,
            [V4],
            [ADDRESS4],
            id="D14-unchanged-lists",
        ),
        pytest.param(PREFERS_ONE, {}, PREFER, [V4], [ADDRESS4], id="D18"),
        pytest.param(LONE_HEADLESS, {"ipFamilyPolicy": REQUIRE, **HEADLESS}, REQUIRE, [V4, V6], ["None"], id="D19"),
    ],
)
def test_an_update_settles(old: Object, spec: Object, policy: str, families: list[str], addresses: list[str]) -> None:
    obj = service(**spec)
    assert settled(obj, DUAL, old) == []
    new = obj["spec"]
    assert (new["ipFamilyPolicy"], new["ipFamilies"], new["clusterIPs"]) == (policy, families, addresses)


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterIP": ADDRESS4, "clusterIPs": [ADDRESS4], "ipFamilies": [V4, V6]},
        {"clusterIP": ADDRESS4, "ipFamilies": [V4]},
    ],
)
def test_d15_the_second_is_not_dropped_without_saying_single(spec: Object) -> None:
    (cause,) = settled(service(**spec), DUAL, TWO)
    assert (cause.field, cause.reason) == ("spec.ipFamilyPolicy", "FieldValueInvalid")


def test_d17_clearing_the_primary_is_repaired_by_what_is_stored() -> None:
    obj = service(clusterIP="", clusterIPs=[])
    settled(obj, DUAL, TWO)
    assert obj["spec"]["clusterIPs"] == [ADDRESS4, ADDRESS6]
    assert obj["spec"]["clusterIP"] == ADDRESS4


def test_d20_an_external_name_has_no_families() -> None:
    obj = service(type="ExternalName", externalName="a.b")
    assert settled(obj, DUAL) == []
    assert not obj["spec"].keys() & {"ipFamilies", "ipFamilyPolicy", "clusterIP", "clusterIPs"}
