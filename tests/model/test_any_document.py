"""Whatever well-typed document a client sends, the way from its bytes to a stored object and a table row holds.

Documents are drawn from the schemas themselves, so every field of every kind takes part, with odd values in it.
"""

import copy
import json
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import codec, defaults, objects, patches, tables, validation
from clusterip.model.resources import RESOURCES, SERVICES, Resource
from clusterip.model.schema import Scalar, Sequence, Struct, Table, Type, fields, struct_of
from clusterip.model.service_update import carry_over, infer_families
from clusterip.model.status import ApiError, Cause, Object

WORDS = st.sampled_from(
    ["", "a", "web", "None", "TCP", "IPv4", "IPv6", "10.96.0.20", "fd00::1", "10.0.0.0/8", "ClusterIP", "ExternalName",
     "LoadBalancer", "NodePort", "Local", "Always", "PreferDualStack", "RequireDualStack", "25%", "a/b", "A b", "é"]
)  # fmt: skip
INTEGERS = st.sampled_from([0, 1, -1, 80, 30080, 65536, 2**31 - 1])
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": WORDS,
    "bool": st.booleans(),
    "int32": INTEGERS,
    "int64": INTEGERS,
    "float64": st.floats(0, 9),
    "bytes": st.sampled_from(["", "YQ=="]),
    "time": st.just("2026-11-30T12:00:00Z"),
    "microtime": st.just("2026-11-30T12:00:00.000001Z"),
    "quantity": st.sampled_from(["1", "500m", "1Gi", 2]),
    "int-or-string": INTEGERS | WORDS,
    "any": st.none() | st.just({"f:a": {}}),
}
# what the rules look at most; other fields are drawn now and then
LIKELY = frozenset(
    ["metadata", "spec", "status", "name", "ports", "port", "protocol", "type", "clusterIP", "clusterIPs", "ipFamilies",
     "ipFamilyPolicy", "selector", "template", "containers", "endpoints", "addresses", "addressType", "subsets",
     "cidrs", "parentRef", "strategy", "rollingUpdate", "matchExpressions", "readinessProbe", "volumes", "env"]
)  # fmt: skip


NOW_AND_THEN = st.integers(0, 30)  # 0: now


@st.composite
def or_null(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Any:
    return None if draw(NOW_AND_THEN) == 0 else draw(values)


# Made once for each type and depth: making strategies takes longer than drawing from them.
@cache
def values(of: Type, depth: int) -> st.SearchStrategy[Any]:
    match of:
        case Scalar(word):
            return or_null(SCALARS[word])
        case Sequence(item):
            return or_null(st.lists(values(item, depth - 1), max_size=3) if depth > 0 else st.builds(list))
        case Table(value):
            return or_null(
                st.dictionaries(WORDS, values(value, depth - 1), max_size=2) if depth > 0 else st.builds(dict)
            )
        case Struct():
            return or_null(structs(of, depth))


@cache
def names(of: Struct) -> st.SearchStrategy[list[str]]:
    known = fields(of)
    likely = sorted(LIKELY & known.keys())
    parts = [st.lists(st.sampled_from(likely), unique=True)] if likely else []
    parts += [st.lists(st.sampled_from(sorted(known)), max_size=2)] if known else []
    return st.tuples(*parts).map(lambda drawn: [n for part in drawn for n in part if n not in ("apiVersion", "kind")])


@cache
def structs(of: Struct, depth: int) -> st.SearchStrategy[Object]:
    @st.composite
    def drawn(draw: st.DrawFn) -> Object:
        return {name: draw(values(fields(of)[name].type, depth - 1)) for name in draw(names(of))}

    return drawn() if depth > 0 else st.builds(dict)


def documents(resource: Resource) -> st.SearchStrategy[Object]:
    return structs(struct_of(resource), 8)


def admitted(resource: Resource, document: Object, old: Object | None) -> tuple[Object, list[Cause]]:
    obj = codec.decode("application/json", json.dumps(document).encode(), resource, codec.STRICT).obj
    obj["metadata"].setdefault("name", "any")
    defaults.apply(resource, obj)
    causes: list[Cause] = []
    if resource is SERVICES:
        carry_over(obj, old)
        causes += infer_families(obj, old, ("IPv4", "IPv6"))
    causes += validation.validate_update(resource, obj, old) if old else validation.validate_create(resource, obj)
    validation.warnings(resource, obj, old)
    return obj, causes


@pytest.mark.parametrize("resource", RESOURCES, ids=[r.kind for r in RESOURCES])
@given(data=st.data())
def test_any_typed_document_is_completed_judged_and_shown(resource: Resource, data: st.DataObject) -> None:
    first, second = data.draw(documents(resource)), data.draw(documents(resource))
    obj, causes = admitted(resource, first, None)
    assert all(cause.reason.startswith("FieldValue") and cause.message for cause in causes)
    stored = copy.deepcopy(obj)
    admitted(resource, second, obj)
    assert obj == stored  # what is stored is only read
    (row,) = tables.table(resource, [obj], now=0.0)["rows"]
    assert all(isinstance(cell, str | int) for cell in row["cells"])
    # sending back what was stored changes nothing
    again, _ = admitted(resource, obj, obj)
    assert again == obj


@pytest.mark.parametrize("resource", RESOURCES, ids=[r.kind for r in RESOURCES])
@given(data=st.data())
def test_any_typed_document_can_be_read_by_all_who_watch_its_kind(resource: Resource, data: st.DataObject) -> None:
    # One that could not be read would stop their watches, of everybody's objects.
    as_type = getattr(objects, resource.kind, None)
    if as_type is not None:
        obj, _ = admitted(resource, data.draw(documents(resource)), None)
        msgspec.json.decode(msgspec.json.encode(obj), type=as_type)


@pytest.mark.parametrize("resource", RESOURCES, ids=[r.kind for r in RESOURCES])
@given(data=st.data())
def test_any_typed_patch_gives_a_document_of_the_kind_or_a_client_error(
    resource: Resource, data: st.DataObject
) -> None:
    obj = codec.decode("application/json", json.dumps(data.draw(documents(resource))).encode(), resource).obj
    patch = json.dumps(data.draw(documents(resource))).encode()
    for media in (patches.STRATEGIC_PATCH, patches.MERGE_PATCH):
        try:
            codec.conformed(patches.apply(media, patch, obj, resource), resource, codec.STRICT)
        except ApiError as error:
            if error.code != 400:
                raise
