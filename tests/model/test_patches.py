"""Patches. What strategic merges give was taken from `kubectl patch --local` 1.36, case by case."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import patches
from clusterip.model.resources import BY_KIND, SERVICES
from clusterip.model.status import ApiError, Object

RECORDED = json.loads((Path(__file__).parent / "strategic_patches.json").read_text())
SERVICE: Object = RECORDED["objects"]["Service"]


def apply(media: str, patch: Any, obj: Object = SERVICE) -> Object:
    resource = BY_KIND[obj["apiVersion"], obj["kind"]]
    return patches.apply(media, json.dumps(patch).encode(), obj, resource)


def without_empty(value: Any) -> Any:
    """kubectl's printer leaves out what is empty."""
    if isinstance(value, dict):
        kept = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in (None, {}, [], "")}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("row", RECORDED["rows"], ids=[json.dumps(row["patch"])[:80] for row in RECORDED["rows"]])
def test_a_strategic_merge_gives_what_kubectl_gives(row: Object) -> None:
    obj = RECORDED["objects"][row["kind"]]
    before = copy.deepcopy(obj)
    if row["result"] is None:
        with pytest.raises(ApiError) as caught:
            apply(patches.STRATEGIC_PATCH, row["patch"], obj)
        assert caught.value.code == 400
    else:
        assert without_empty(apply(patches.STRATEGIC_PATCH, row["patch"], obj)) == row["result"]
    assert obj == before


def test_an_unknown_field_is_merged_as_plain_json_for_the_codec_to_judge() -> None:
    merged = apply(patches.STRATEGIC_PATCH, {"spec": {"foo": {"a": 1}, "bar": [1]}})
    assert (merged["spec"]["foo"], merged["spec"]["bar"]) == ({"a": 1}, [1])


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # the examples of RFC 7386, appendix A, as far as they leave an object
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_follows_its_rfc(target: Object, patch: Object, result: Object) -> None:
    assert patches.merge(target, patch) == result
    assert patches.apply(patches.MERGE_PATCH, json.dumps(patch).encode(), target, SERVICES) == result


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "test", "path": "/spec/type", "value": "x"}, "test /spec/type: the value there is not the one"),
        ({"op": "test", "path": "/spec/none", "value": "x"}, "test /spec/none: the value there is not the one"),
        ({"op": "remove", "path": "/none/x"}, "remove /none/x: the path leads to nothing"),
        ({"op": "add", "path": "/spec/type/x", "value": 1}, "add /spec/type/x: the path leads to nothing"),
        ({"op": "move", "path": "/spec/x", "from": "/none"}, "move /spec/x: nothing can be taken from /none"),
        ({"op": "dance", "path": "/spec"}, "dance /spec: Unknown operation 'dance'"),
        ({"op": "add"}, "add: Operation must have a 'path' member"),
        ({}, "an operation: Operation"),
    ],
)
def test_why_a_json_patch_does_not_fit_is_said_without_quoting_python(operation: Object, why: str) -> None:
    with pytest.raises(ApiError) as caught:
        apply(patches.JSON_PATCH, [operation])
    assert f"patch: {why}" in caught.value.message
    assert not any(word in caught.value.message for word in ("<class", "{", "None"))


def test_a_json_patch_is_applied_in_order() -> None:
    operations = [
        {"op": "test", "path": "/spec/type", "value": "ClusterIP"},
        {"op": "replace", "path": "/spec/type", "value": "NodePort"},
        {"op": "add", "path": "/spec/ports/-", "value": {"port": 90}},
        {"op": "remove", "path": "/spec/ports/0"},
        {"op": "copy", "from": "/spec/selector", "path": "/metadata/labels"},
    ]
    patched = apply(patches.JSON_PATCH, operations)
    assert [port["port"] for port in patched["spec"]["ports"]] == [81, 82, 90]
    assert (patched["spec"]["type"], patched["metadata"]["labels"]) == ("NodePort", {"a": "b"})


@pytest.mark.parametrize(
    ("media", "patch", "code"),
    [
        (patches.JSON_PATCH, [{"op": "remove", "path": "/spec/gone"}], 422),
        (patches.JSON_PATCH, [{"op": "test", "path": "/spec/type", "value": "x"}], 422),
        (patches.JSON_PATCH, [{"op": "add", "path": "/spec/type/x", "value": 1}], 422),
        (patches.JSON_PATCH, [{"op": "dance", "path": "/spec"}], 422),
        (patches.JSON_PATCH, [{"path": "/spec"}], 422),
        (patches.JSON_PATCH, [{"op": "replace", "path": "", "value": 1}], 422),
        (patches.JSON_PATCH, {"op": "remove"}, 400),
        (patches.JSON_PATCH, [1], 400),
        (patches.JSON_PATCH, [{"op": "test", "path": "/spec", "value": {}}] * 10_001, 413),
        (
            patches.JSON_PATCH,
            [{"op": "copy", "from": "/spec", "path": f"/spec/a{i}"} for i in range(40)],
            413,
        ),
        (patches.MERGE_PATCH, [], 422),
        (patches.MERGE_PATCH, None, 422),
        (patches.STRATEGIC_PATCH, [], 400),
        (patches.STRATEGIC_PATCH, {"spec": {"$patch": "dance"}}, 400),
        (patches.STRATEGIC_PATCH, {"spec": {"ports": [1]}}, 400),
        (patches.STRATEGIC_PATCH, {"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}, 400),
        (patches.STRATEGIC_PATCH, {"spec": {"$retainKeys": 1}}, 400),
        ("application/apply-patch+yaml", {}, 415),
        ("application/json", {}, 415),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(media: str, patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        apply(media, patch)
    assert caught.value.code == code


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"{" + b'"a":{' * 100_000, b"a: ["])
def test_a_patch_that_cannot_be_read_is_a_bad_request(body: bytes) -> None:
    for media in (patches.JSON_PATCH, patches.MERGE_PATCH, patches.STRATEGIC_PATCH):
        with pytest.raises(ApiError) as caught:
            patches.apply(media, body, SERVICE, SERVICES)
        assert caught.value.code in (400, 422)


def test_server_side_apply_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ApiError, match="without --server-side"):
        apply("application/apply-patch+yaml", {})


def test_a_patch_may_be_yaml() -> None:
    patched = patches.apply(patches.MERGE_PATCH, b"spec:\n  type: NodePort\n", SERVICE, SERVICES)
    assert patched["spec"]["type"] == "NodePort"


VALUES = st.recursive(
    st.booleans() | st.integers(0, 9) | st.sampled_from("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(before=DOCUMENTS, after=DOCUMENTS)
def test_a_json_patch_made_from_two_documents_leads_from_one_to_the_other(before: Object, after: Object) -> None:
    operations = jsonpatch.make_patch(before, after).patch
    body = json.dumps(operations).encode()
    assert patches.apply(patches.JSON_PATCH, body, before, SERVICES) == after


@given(target=DOCUMENTS, patch=DOCUMENTS)
def test_merging_twice_is_merging_once(target: Object, patch: Object) -> None:
    once = patches.merge(target, patch)
    assert patches.merge(once, patch) == once
    body = json.dumps(patch).encode()
    strategic = patches.apply(patches.STRATEGIC_PATCH, body, target, SERVICES)
    assert patches.apply(patches.STRATEGIC_PATCH, body, strategic, SERVICES) == strategic


OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])},
        optional={
            "path": st.sampled_from(["", "/", "/a", "/a/0", "/a/-", "/b/c", "a", "/a/00", "/~2"]) | VALUES,
            "from": st.sampled_from(["", "/a", "/b", "/a/0"]) | VALUES,
            "value": VALUES,
        },
    ),
    max_size=4,
)


@given(obj=DOCUMENTS, operations=OPERATIONS)
def test_any_json_patch_gives_an_object_or_a_client_error(obj: Object, operations: list[Object]) -> None:
    try:
        patched = patches.apply(patches.JSON_PATCH, json.dumps(operations).encode(), obj, SERVICES)
    except ApiError as error:
        if error.code not in (400, 422):
            raise
    else:
        assert isinstance(patched, dict)
