"""A decoded document against the shape of its kind: wrong types refused, unknown fields dropped and named.

Follows what Go's decoder does with the same document, because clients see the result: `null` is absence, fields are
matched by exact case, a number with a fraction is no integer, times come out in UTC, quantities as strings, a
required field that is missing has its type's zero. So everybody who knows the kind can read what is stored.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from clusterip.model.schema import Scalar, Sequence, Struct, Table, Type, fields, go_name
from clusterip.model.status import Object

_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_WIDTH = {"int32": 31, "int64": 63}
_DEEPEST = 100  # levels of free-form JSON
_ABSENT = object()
# What Go writes for a scalar that nobody set. It writes `null` for a time, which is absence again.
_ZEROS: Mapping[str, Any] = {
    "string": "",
    "bytes": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "int-or-string": 0,
    "float64": 0.0,
}


class WrongType(Exception):
    """A value that the field's type cannot hold. The message is the one Go's decoder gives."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the walk is: `path` as errors write it, `owner` the innermost struct."""

    owner: str = ""
    path: str = ""

    def field(self, owner: str, name: str) -> "Place":
        return Place(owner, f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> "Place":
        return Place(self.owner, f"{self.path}[{index}]")

    def key(self, key: str) -> "Place":
        return Place(self.owner, f"{self.path}.{key}")


@dataclass(frozen=True, slots=True)
class Conformed:
    obj: Object
    unknown: tuple[str, ...]  # paths of the fields that were dropped, in document order


@dataclass(frozen=True, slots=True)
class _Walk:
    unknown: list[str] = field(default_factory=list)

    def value(self, of: Type, value: Any, place: Place) -> Any:
        """`value` as `of` holds it; _ABSENT for what Go would leave out."""
        match of:
            case Scalar(word):
                return _scalar(word, value, place)
            case Struct():
                if value is None:
                    return _ABSENT
                return self.struct(of, _expect(dict, value, of, place), place)
            case Sequence(item):
                if value is None:
                    return _ABSENT
                return self._sequence(item, _expect(list, value, of, place), place)
            case Table(inner):
                if value is None:
                    return _ABSENT
                entries = _expect(dict, value, of, place)
                return {k: _filled(inner, self.value(inner, v, place.key(k))) for k, v in entries.items()}

    def _sequence(self, of: Type, items: list[Any], place: Place) -> list[Any]:
        return [_filled(of, self.value(of, item, place.item(i))) for i, item in enumerate(items)]

    def struct(self, of: Struct, document: Mapping[str, Any], place: Place) -> Object:
        known = fields(of)
        kept: Object = {}
        for name, raw in document.items():
            here = place.field(of.short, name)
            one = known.get(name)
            if one is None:
                self.unknown.append(here.path)
                continue
            value = self.value(one.type, raw, here)
            # Go leaves out empty maps and lists; a field that the schema requires is written all the same.
            empty = isinstance(one.type, Sequence | Table) and not value and not one.required
            if value is not _ABSENT and not empty:
                kept[name] = value
        for name, zero in _always(of):
            kept.setdefault(name, zero)
        return kept


@cache
def _always(of: Struct) -> tuple[tuple[str, Any], ...]:
    """The fields that are written even if nobody set them, with what is written then."""
    return tuple(
        (name, _ZEROS[one.type.word])
        for name, one in fields(of).items()
        if one.required and isinstance(one.type, Scalar) and one.type.word in _ZEROS
    )


def conform(of: Struct, document: Mapping[str, Any]) -> Conformed:
    """The document with known fields only. Raises WrongType."""
    walk = _Walk()
    obj = walk.struct(of, document, Place())
    return Conformed(obj, tuple(walk.unknown))


def _filled(of: Type, value: Any) -> Any:
    """Inside lists and maps `null` cannot be left out: Go puts the type's zero there."""
    if value is not _ABSENT:
        return value
    match of:
        case Struct():
            return _Walk().struct(of, {}, Place())
        case Table():
            return {}
        case Sequence():
            return []
        case Scalar("quantity"):
            return "0"
        case Scalar(word):
            return _ZEROS.get(word)


def _expect(kind: type, value: Any, of: Type, place: Place) -> Any:
    if not isinstance(value, kind):
        raise _wrong(value, of, place)
    return value


def _scalar(word: str, value: Any, place: Place) -> Any:
    if value is None:
        return _ABSENT
    match word:
        case "string" if isinstance(value, str):
            return value
        case "bool" if isinstance(value, bool):
            return value
        case "int32" | "int64" if _is_int(value) and -(1 << _WIDTH[word]) <= value < 1 << _WIDTH[word]:
            return value
        case "float64" if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        case "int-or-string" if isinstance(value, str) or (_is_int(value) and -(1 << 31) <= value < 1 << 31):
            return value
        case "any":
            return _shallow(value)
        case "quantity":
            return _quantity(value)
        case "time" | "microtime" if isinstance(value, str):
            return _time(value, micro=word == "microtime")
        case "bytes" if isinstance(value, str):
            return _base64(value)
    raise _wrong(value, Scalar(word), place)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shallow(value: Any) -> Any:
    """Free-form JSON is stored as it came, and whoever reads it walks it by recursion."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return value
    raise WrongType(f"json: nested more than {_DEEPEST} levels deep")


def _quantity(value: Any) -> str:
    text = str(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    if not _QUANTITY.fullmatch(text):
        raise WrongType(
            f'"{text or value}" is not a quantity: write a number with a suffix such as m, k, M, Ki, Mi, Gi'
        )
    return text


def _time(text: str, *, micro: bool) -> str:
    """RFC 3339 in UTC: seconds, or with `micro` six digits below."""
    matched = _TIME.fullmatch(text)
    try:
        if not matched:
            raise ValueError
        moment = datetime.fromisoformat(matched[1] + matched[3]).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise WrongType(f'parsing time "{text}": not RFC 3339, such as 2006-01-02T15:04:05Z') from error
    fraction = (matched[2] or ".0").ljust(7, "0")[:7] if micro else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + fraction + "Z"


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WrongType(f"illegal base64 data: {error}") from error
    return text


def _wrong(value: Any, of: Type, place: Place) -> WrongType:
    path = re.sub(r"\[\d+\]", "", place.path)  # Go names fields only, not which item
    return WrongType(
        f"json: cannot unmarshal {_json_word(value)} into Go struct field {place.owner}.{path} of type {go_name(of)}"
    )


def _json_word(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return f"number {value}"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
