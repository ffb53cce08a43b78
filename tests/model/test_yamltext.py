"""YAML as Go reads it. The expectations were checked against kubectl's own reading."""

import pytest

from clusterip.errors import BadInput
from clusterip.model.yamltext import documents


def one(text: str) -> object:
    (document,) = documents(text)
    return document.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0777", 511), ("0o17", 15), ("0x1F", 31), ("0b101", 5), ("-0x10", -16), ("1_000", 1000), ("+5", 5), ("0", 0),
        ("0888", 888), ("1e3", 1000), ("1.5", 1.5), (".5", 0.5), ("5.0", 5), ("-5", -5),
        ("1e400", "1e400"), ("1e21", 1e21),
        ("on", True), ("Yes", True), ("y", True), ("OFF", False), ("n", False), ("true", True), ("tRue", "tRue"),
        ("~", None), ("null", None), ("", None), ("nULL", "nULL"),
        ("12:30:45", "12:30:45"), ("2026-01-02", "2026-01-02"), ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1.2.3", "1.2.3"), ("0x", "0x"), ("_1", "_1"), ("10.96.0.1", "10.96.0.1"),
        ('"5"', "5"), ("'on'", "on"), ("!!str 5", "5"), ("|\n  a\n  b", "a\nb"),
        ("{a: [1, b]}", {"a": [1, "b"]}),
        ("1: a\non: b\n1.5: d", {"1": "a", "true": "b", "1.5": "d"}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("a: &x {b: 1}\nc: {b: 3, <<: *x}", {"a": {"b": 1}, "c": {"b": 1}}),
    ],
)  # fmt: skip
def test_a_scalar_is_what_go_makes_of_it(text: str, value: object) -> None:
    read = one(text) if text else next(iter(documents("a:"))).value["a"]
    assert read == value
    assert type(read) is type(value)


def test_a_stream_gives_each_of_its_documents() -> None:
    assert [document.value for document in documents("a: 1\n---\n# nothing\n---\nb: 2\n")] == [{"a": 1}, None, {"b": 2}]


def test_keys_given_twice_are_named_and_the_last_counts() -> None:
    (document,) = documents("spec:\n  ports:\n  - port: 1\n    port: 2\n")
    assert document.value == {"spec": {"ports": [{"port": 2}]}}
    assert document.duplicates == ("spec.ports[0].port",)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a: [", "line 2"),
        ("a: b: c", "line 1, column 5"),
        ("? [a]\n: b", "a key must be a string"),
        ("a: &x [*x]", "contains itself"),
        ("!!int x", "cannot be a int"),
        ("a: .inf", "cannot be a float"),
        ("a: -.INF", "cannot be a float"),
        ("a: .nan", "cannot be a float"),
        ("~: a", "a key must not be null"),
        ("<<: 1", "<< needs a mapping"),
        ("a: *gone", "alias"),
        ("\x00", "YAML"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(text: str, fragment: str) -> None:
    with pytest.raises(BadInput, match="YAML") as caught:
        list(documents(text))
    assert fragment in caught.value.message


def test_aliases_cannot_unfold_without_bound() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(BadInput, match="unfold to too much"):
        list(documents("\n".join(lines)))
