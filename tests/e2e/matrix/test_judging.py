"""The judge of the matrix: what it must not let pass. Pure."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.e2e.matrix import odds
from tests.e2e.matrix.drawing import Dealer, Spot
from tests.e2e.matrix.judging import FEW, STICKY, judge, probes
from tests.e2e.matrix.world import REFUSED, Answer, Cell, Client, Decider, Frontend

from clusterip.services.route import Source
from clusterip.services.table import EntryKey, PortName

POD = Client("visitor-1", Source.POD, "node-1", {"IPv4": "10.244.1.9"})
OTHER = Client("visitor-2", Source.POD, "node-1", {"IPv4": "10.244.1.10"})
FRONTEND = Frontend("s01:p0 clusterIP", "10.96.0.10", 8001, "TCP", "IPv4")
DECIDER = Decider("node-1", EntryKey(PortName("matrix", "s01", "p0"), "IPv4", "TCP"), False)
RED, BLUE = Answer("red-1:8080", "visitor-1"), Answer("blue-1:8080", "visitor-1")
BOTH = Cell(POD, FRONTEND, "10.244.1.9", "10.96.0.10", frozenset({RED, BLUE}), DECIDER, False)
STICKS = replace(BOTH, sticky=True)
NOBODY = Cell(POD, FRONTEND, "10.244.1.9", "10.96.0.10", frozenset({REFUSED}), None, False)


def verdict(cells: Sequence[Cell], *counts: Mapping[Answer, int]) -> tuple[int, tuple[str, ...]]:
    """How many cells are wrong, and what else is."""
    report = judge(cells, {i: Counter(given) for i, given in enumerate(counts)})
    assert report.right == (not report.wrong and not report.also)
    return len(report.wrong), report.also


def test_what_was_expected_is_right() -> None:
    assert verdict([BOTH, NOBODY], {RED: 30, BLUE: 28}, {REFUSED: 1}) == (0, ())


@pytest.mark.parametrize("seen", [{RED: 1, REFUSED: 1}, {REFUSED: 2}, {Answer("red-1:8080", "node-1"): 2}, {}])
def test_one_answer_that_was_not_expected_makes_a_cell_wrong(seen: Mapping[Answer, int]) -> None:
    assert verdict([BOTH], seen)[0] == 1


def test_a_backend_that_nobody_met_is_missed() -> None:
    wrong, (also,) = verdict([BOTH, replace(BOTH, client=OTHER)], {RED: 2}, {RED: 3})
    assert wrong == 0
    assert "never met blue-1:8080" in also


def test_one_client_may_miss_what_another_met() -> None:
    assert verdict([BOTH, replace(BOTH, client=OTHER)], {RED: 2}, {BLUE: 2}) == (0, ())


def test_a_sticky_client_that_moves_is_told() -> None:
    wrong, (also,) = verdict([STICKS, STICKS], {RED: 4}, {BLUE: 4})
    assert wrong == 0
    assert "should keep its backend" in also
    assert verdict([STICKS, replace(STICKS, source="10.244.1.1")], {RED: 4}, {BLUE: 4}) == (0, ())


def test_an_unequal_share_is_told() -> None:
    assert any("backend 1 of 2" in also for also in verdict([BOTH], {RED: 500, BLUE: 1500})[1])
    assert verdict([BOTH], {RED: 960, BLUE: 1040}) == (0, ())


def test_each_pool_is_asked_often_enough_and_the_rest_as_seldom_as_will_do() -> None:
    asked = probes([BOTH, replace(BOTH, client=OTHER), STICKS, NOBODY])
    assert [p.times for p in asked[2:]] == [STICKY, FEW["TCP"]]
    assert sum(p.times for p in asked[:2]) >= odds.tries(2, 1)
    assert asked[2].group
    assert not asked[0].group


@pytest.mark.parametrize("backends", [1, 2, 3, 7])
def test_tries_leave_no_backend_out_but_for_the_chance_that_is_allowed(backends: int) -> None:
    tries = odds.tries(backends, 200)
    missed = 200 * backends * (1 - 1 / backends) ** tries
    assert missed * odds.ROUNDS <= odds.ALARM / 2 * 1.0001


def test_equal_shares_are_not_called_unequal() -> None:
    lot = random.Random(1)
    for _ in range(200):
        pools = [Counter(lot.choices(range(size), k=40)) for size in (2, 2, 3, 5)]
        assert not odds.shares([{str(k): v for k, v in pool.items()} for pool in pools])


SPOTS = [Spot(f"node-{n}", "east", {"IPv4": f"10.244.{n}.2", "IPv6": f"fd00:1:{n}::2"}) for n in (1, 2, 3)]


@pytest.mark.parametrize("seed", range(5))
def test_a_draw_has_every_feature_and_no_two_services_share_a_claim(seed: int) -> None:
    drawn = Dealer(str(seed), ("IPv4", "IPv6"), SPOTS).services(range(1, 25))
    assert drawn == Dealer(str(seed), ("IPv4", "IPv6"), SPOTS).services(range(1, 25))
    specs = [one.service["spec"] for one in drawn]
    assert {spec["type"] for spec in specs} == {"ClusterIP", "NodePort", "LoadBalancer"}
    for field, values in (
        ("internalTrafficPolicy", {"Cluster", "Local"}),
        ("externalTrafficPolicy", {"Cluster", "Local"}),
        ("sessionAffinity", {"None", "ClientIP"}),
        ("publishNotReadyAddresses", {True, False}),
    ):
        assert {spec[field] for spec in specs if field in spec} == values
    assert all(any(field in spec for spec in specs) for field in ("externalIPs", "loadBalancerSourceRanges"))
    assert any(one.slices for one in drawn)
    assert {port["protocol"] for spec in specs for port in spec["ports"]} == {"TCP", "UDP"}
    claims = [(port["port"], port["protocol"]) for spec in specs for port in spec["ports"]]
    assert len(claims) == len(set(claims))
