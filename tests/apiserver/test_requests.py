"""Paths and queries, read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.apiserver.requests import (
    Position,
    Target,
    delete_query,
    flag,
    list_query,
    number,
    parse_path,
    write_query,
)
from clusterip.model.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, SERVICES
from clusterip.model.status import ApiError


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/pods", Target(PODS)),
        ("/api/v1/namespaces/a/pods", Target(PODS, "a")),
        ("/api/v1/namespaces/a/pods/", Target(PODS, "a")),
        ("/api/v1/namespaces/a/pods/b", Target(PODS, "a", "b")),
        ("/api/v1/namespaces/a/pods/b/log", Target(PODS, "a", "b", "log")),
        ("/api/v1/namespaces/a/services/http:b:80/proxy", Target(SERVICES, "a", "http:b:80", "proxy")),
        ("/api/v1/namespaces/a/services/b/proxy/c/d/e", Target(SERVICES, "a", "b", "proxy", "c/d/e")),
        ("/api/v1/namespaces", Target(NAMESPACES)),
        ("/api/v1/namespaces/a", Target(NAMESPACES, "", "a")),
        ("/api/v1/namespaces/a/status", Target(NAMESPACES, "", "a", "status")),
        ("/api/v1/namespaces/a/finalize", Target(NAMESPACES, "", "a", "finalize")),
        ("/api/v1/nodes/n", Target(NODES, "", "n")),
        ("/apis/apps/v1/namespaces/a/deployments/d/scale", Target(DEPLOYMENTS, "a", "d", "scale")),
        ("/api/v1/namespaces/a/nodes/n", None),
        ("/api/v1/pods/b", None),
        ("/api/v1/namespaces//pods", None),
        ("/api/v1/namespaces/a/pods/b/log/more", None),
        ("/api/v1/namespaces/a/pods/b/nothing", None),
        ("/apis//v1/pods", None),
        ("/apis/v1/pods", None),
        ("/", None),
    ],
)
def test_a_path_names_a_collection_an_object_or_a_subresource(path: str, target: Target | None) -> None:
    assert parse_path(path) == target


def test_keys_follow_the_plural_and_the_group() -> None:
    assert Target(PODS, "a", "b").key == "/pods/a/b"
    assert Target(NODES, "", "n").key == "/nodes/n"
    assert Target(DEPLOYMENTS, "a", "d", "scale").key == "/deployments.apps/a/d"
    assert Target(DEPLOYMENTS).prefix == "/deployments.apps/"


@given(st.integers(0, 1 << 62), st.text(st.characters(codec="utf-8")))
def test_a_continue_token_comes_back_as_it_went(revision: int, after: str) -> None:
    position = Position(revision, after)
    assert list_query({"continue": [position.token()]}).position == position


@given(st.text())
def test_any_continue_token_is_read_or_refused(token: str) -> None:
    try:
        list_query({"continue": [token]})
    except ApiError as error:
        assert error.code == 400  # noqa: PT017  both ways are right


def test_booleans_are_spelled_as_go_takes_them() -> None:
    assert all(flag({"x": [text]}, "x") for text in ("1", "t", "T", "true", "True", "TRUE"))
    assert not any(flag({"x": [text]}, "x") for text in ("0", "f", "False", ""))
    assert not flag({}, "x")
    with pytest.raises(ApiError):
        flag({"x": ["yes"]}, "x")


def test_numbers_are_decimal_and_of_sane_length() -> None:
    assert number({"x": ["12"]}, "x") == 12
    for text in ("-1", "1.5", "0x1", "9" * 30, "\u0661"):
        with pytest.raises(ApiError):
            number({"x": [text]}, "x")


def test_a_version_is_exact_when_said_or_when_paged() -> None:
    assert list_query({"resourceVersion": ["5"], "resourceVersionMatch": ["Exact"]}).exact
    assert list_query({"resourceVersion": ["5"], "limit": ["1"]}).exact
    assert not list_query({"resourceVersion": ["5"]}).exact
    assert not list_query({"resourceVersion": ["0"], "limit": ["1"]}).exact
    for wrong in (
        {"resourceVersionMatch": ["Exact"]},
        {"resourceVersion": ["0"], "resourceVersionMatch": ["Exact"]},
        {"resourceVersion": ["5"], "continue": [Position(1, "").token()]},
        {"resourceVersion": ["5"], "resourceVersionMatch": ["Perhaps"]},
    ):
        with pytest.raises(ApiError):
            list_query(wrong)


def test_options_of_a_deletion_come_from_the_body_first() -> None:
    query = delete_query({"gracePeriodSeconds": ["9"], "propagationPolicy": ["Orphan"]}, {"gracePeriodSeconds": 3})
    assert (query.grace_seconds, query.policy) == (3, "Orphan")
    assert delete_query({}, {"orphanDependents": True}).policy == "Orphan"
    assert delete_query({}, {"gracePeriodSeconds": -5}).grace_seconds == 1
    assert delete_query({}, {"dryRun": ["All"]}).dry_run
    assert delete_query({}, {"preconditions": {"uid": "u"}}).uid == "u"


def test_writes_may_be_tried_and_may_be_strict() -> None:
    assert write_query({"dryRun": ["All"]}).dry_run
    assert write_query({}).field_validation == "Warn"
    for wrong in ({"dryRun": ["Some"]}, {"fieldValidation": ["Maybe"]}):
        with pytest.raises(ApiError):
            write_query(wrong)
