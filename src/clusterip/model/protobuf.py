"""Kubernetes' protobuf bodies to JSON documents: what kubectl 1.32 and later sends for `create deployment` and others.

A body is `k8s\\0` and one runtime.Unknown message that names the kind and holds the object's bytes. Types come from the
schemas, field numbers from protobuf_fields; numbers we do not know are skipped, as protobuf means them to be.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeAlias

import msgspec

from clusterip.model.protobuf_fields import ROWS, ZERO_IS_ABSENT
from clusterip.model.schema import Scalar, Sequence, Struct, Table, Type, fields
from clusterip.model.status import Object

MAGIC = b"k8s\0"
_PREFIXES = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.api.")
_LENGTHS = {1: 8, 5: 4}  # wire type -> bytes of a fixed field
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Wire: TypeAlias = int | bytes  # a varint's value, or the bytes of any other field


class Malformed(ValueError):
    """Not the bytes of such a message: cut short, a length past the end, a wire type that does not fit."""


@dataclass(frozen=True, slots=True)
class Envelope:
    api_version: str
    kind: str
    raw: bytes


def open_envelope(body: bytes) -> Envelope:
    """Raises Malformed."""
    if not body.startswith(MAGIC):
        raise Malformed("it does not begin with k8s and a zero byte")
    kind: dict[int, Wire] = {}
    raw: Wire = b""
    for number, value in _fields(body[len(MAGIC) :]):
        match number:
            case 1:
                kind = dict(_fields(_bytes(value)))
            case 2:
                raw = value
    return Envelope(_text(kind.get(1, b"")), _text(kind.get(2, b"")), _bytes(raw))


def decode(of: Struct, raw: bytes) -> Object:
    """One message as the JSON document it stands for, without zero values. Raises Malformed."""
    obj: Object = {}
    _merge(obj, of, field_numbers(of.name), raw)
    return obj


def _merge(obj: Object, of: Struct, numbers: Mapping[int, str], raw: bytes) -> None:
    known = fields(of)
    for number, wire in _fields(raw):
        name = numbers.get(number, "")
        if name.startswith("+"):
            _merge(obj, of, _rows()[name], _bytes(wire))
        elif name in known:
            _put(obj, name, known[name].type, wire)


def _put(obj: Object, name: str, of: Type, wire: Wire) -> None:
    match of:
        case Sequence(item):
            obj.setdefault(name, []).append(_value(item, wire))
        case Table(value):
            entry = dict(_fields(_bytes(wire)))
            obj.setdefault(name, {})[_text(entry.get(1, b""))] = _value(value, entry.get(2, b""))
        case _:
            value = _value(of, wire)
            if value is None or value == "" or (not value and name in ZERO_IS_ABSENT):
                return
            obj[name] = value


def _value(of: Type, wire: Wire) -> Any:
    match of:
        case Struct():
            return decode(of, _bytes(wire))
        case Scalar("string"):
            return _text(wire)
        case Scalar("bool"):
            return bool(_int(wire))
        case Scalar("int32" | "int64"):
            return _signed(_int(wire))
        case Scalar("bytes"):
            return base64.b64encode(_bytes(wire)).decode()
        case Scalar("quantity"):
            return _text(dict(_fields(_bytes(wire))).get(1, b"")) or "0"
        case Scalar("int-or-string"):
            return _int_or_string(dict(_fields(_bytes(wire))))
        case Scalar("time" | "microtime" as word):
            return _time(dict(_fields(_bytes(wire))), micro=word == "microtime")
        case Scalar("any"):
            return _json(dict(_fields(_bytes(wire))).get(1, b""))
        case _:
            raise Malformed(f"no message holds a {of}")


def _int_or_string(message: Mapping[int, Wire]) -> int | str:
    if _int(message.get(1, 0)):
        return _text(message.get(3, b""))
    return _signed(_int(message.get(2, 0)))


def _time(message: Mapping[int, Wire], *, micro: bool) -> str | None:
    """RFC 3339 in UTC; None for Go's zero time, which travels as an empty message."""
    if not message:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=_signed(_int(message.get(1, 0))))
    except OverflowError as error:
        raise Malformed("a time is out of range") from error
    nanos = _int(message.get(2, 0))
    fraction = f".{nanos // 1000 % 1_000_000:06d}" if micro else ""
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + fraction + "Z"


def _json(wire: Wire) -> Any:
    try:
        return msgspec.json.decode(_bytes(wire) or b"null")
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"embedded JSON: {error}") from error


def _fields(raw: bytes) -> Iterator[tuple[int, Wire]]:
    """The fields of one message in wire order."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield number, value
            continue
        if kind == 2:
            length, at = _varint(raw, at)
        elif kind in _LENGTHS:
            length = _LENGTHS[kind]
        else:
            raise Malformed(f"wire type {kind} at byte {at}")
        if length > len(raw) - at:
            raise Malformed(f"field {number} claims {length} bytes, {len(raw) - at} are left")
        yield number, raw[at : at + length]
        at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(raw):
            raise Malformed("it ends inside a number")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise Malformed("a number longer than 64 bits")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _int(wire: Wire) -> int:
    if not isinstance(wire, int):
        raise Malformed("bytes where a number belongs")
    return wire


def _bytes(wire: Wire) -> bytes:
    if not isinstance(wire, bytes):
        raise Malformed("a number where bytes belong")
    return wire


def _text(wire: Wire) -> str:
    try:
        return _bytes(wire).decode()
    except UnicodeDecodeError as error:
        raise Malformed("a text is not UTF-8") from error


@cache
def _rows() -> Mapping[str, Mapping[int, str]]:
    """Message name -> number -> JSON name."""
    rows: dict[str, dict[int, str]] = {}
    current: dict[int, str] = {}
    for word in ROWS.split():
        if word.endswith(":"):
            current = rows.setdefault(word[:-1], {})
            continue
        number, _, name = word.rpartition(":")
        current[int(number) if number else max(current, default=0) + 1] = name
    return rows


@cache
def field_numbers(definition: str) -> Mapping[int, str]:
    """Number -> JSON name in one message, `+name` where it inlines another; empty for a message without a row."""
    for prefix in _PREFIXES:
        definition = definition.removeprefix(prefix)
    return _rows().get(definition, {})
