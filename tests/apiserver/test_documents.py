"""What the store holds of an object, and what clients get of it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusterip.apiserver import documents
from clusterip.apiserver.lifecycle import same
from clusterip.store.base import Item

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)  # the codec refuses what UTF-8 cannot hold
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | TEXT | st.just("\0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    metadata = draw(st.dictionaries(TEXT, VALUES, max_size=4)) | {"name": draw(TEXT), "resourceVersion": "7"}
    return {**draw(st.dictionaries(TEXT, VALUES, max_size=4)), "kind": "T", "apiVersion": "v1", "metadata": metadata}


@given(objects(), st.integers(1, 1 << 60))
def test_an_object_comes_back_under_the_revision_of_its_commit(obj: dict[str, Any], revision: int) -> None:
    item = Item("/things/x", documents.value(obj), 1, revision)
    obj["metadata"]["resourceVersion"] = str(revision)
    assert json.loads(documents.body(item)) == obj
    assert documents.decode(item) == obj
    assert same(documents.decode(item), documents.decode(Item("/things/x", item.value, 1, revision + 1)))


@given(objects())
def test_the_head_knows_name_and_labels(obj: dict[str, Any]) -> None:
    obj["metadata"] = {"name": obj["metadata"]["name"], "labels": {"a": "b"}}
    head = documents.head(Item("/things/x", documents.value(obj), 1, 5))
    assert (head.metadata.name, head.metadata.labels) == (obj["metadata"]["name"], {"a": "b"})


def test_what_was_never_stored_has_no_revision() -> None:
    item = Item("/things/x", documents.value({"kind": "T", "apiVersion": "v1", "metadata": {}}), 0, 0)
    assert documents.body(item) == b'{"kind":"T","apiVersion":"v1","metadata":{"resourceVersion":""}}'


def test_a_document_is_decoded_once_for_all_and_forgotten_in_time() -> None:
    value = documents.value({"kind": "T", "apiVersion": "v1", "metadata": {}})
    decoded = documents.Decoded(size=2)
    first = decoded.of(Item("/t/0", value, 1, 1))
    assert decoded.of(Item("/t/0", value, 1, 1)) is first
    for n in range(2, 5):
        decoded.of(Item("/t/0", value, 1, n))
    assert decoded.of(Item("/t/0", value, 1, 1)) is not first
