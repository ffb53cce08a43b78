"""Bodies in: JSON, YAML or protobuf to the document of one kind. Whatever the bytes are, the answer is a document or
an ApiError: 400 for bytes that are not this kind, 415 for a format we do not read.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from clusterip.errors import BadInput
from clusterip.model import protobuf, yamltext
from clusterip.model.conform import WrongType, conform
from clusterip.model.resources import DELETE_OPTIONS, Resource
from clusterip.model.schema import struct_of
from clusterip.model.status import ApiError, Object

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"  # values of ?fieldValidation=; the server's default is Warn
_MOST_NAMED = 100  # unknown fields listed in one answer


@dataclass(frozen=True, slots=True)
class Decoded:
    obj: Object  # only fields the kind has; apiVersion and kind are always set
    warnings: tuple[str, ...] = ()  # for `Warning: 299` headers


@dataclass(frozen=True, slots=True)
class _Parsed:
    document: Any
    duplicates: tuple[str, ...] = ()


def media_type(content_type: str) -> str:
    """Without parameters, lower case; JSON when the client does not say."""
    return content_type.partition(";")[0].strip().lower() or JSON


def decode(content_type: str, body: bytes, resource: Resource, field_validation: str = WARN) -> Decoded:
    """Raises ApiError 400 or 415, nothing else."""
    match media_type(content_type):
        case "application/json":
            parsed = _json(body, resource)
        case "application/yaml":
            parsed = _yaml(body, resource)
        case "application/vnd.kubernetes.protobuf":
            parsed = _protobuf(body, resource)
        case other:
            raise unsupported(other, (JSON, YAML, PROTOBUF))
    return conformed(parsed.document, resource, field_validation, parsed.duplicates)


def unsupported(media: str, accepted: tuple[str, ...]) -> ApiError:
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
        hint=f"{media!r} was sent",
    )


def conformed(
    document: Any, resource: Resource, field_validation: str = WARN, duplicates: tuple[str, ...] = ()
) -> Decoded:
    """A document from a body or a patch, reduced to what the kind has. Raises ApiError 400."""
    if not isinstance(document, dict):
        raise _bad(resource, f"a JSON object belongs here, not {_word(document)}")
    _check_kind(document, resource)
    try:
        result = conform(struct_of(resource), document)
    except WrongType as error:
        raise _bad(resource, str(error)) from error
    complaints = [f'duplicate field "{path}"' for path in duplicates]
    complaints += [f'unknown field "{path}"' for path in result.unknown]
    if complaints and field_validation == STRICT:
        raise _bad(resource, f"strict decoding error: {', '.join(complaints[:_MOST_NAMED])}")
    result.obj.pop("kind", None)
    result.obj.pop("apiVersion", None)
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, **result.obj}
    if resource is not DELETE_OPTIONS:
        obj.setdefault("metadata", {})
    return Decoded(obj, tuple(complaints[:_MOST_NAMED]) if field_validation == WARN else ())


def _check_kind(document: Object, resource: Resource) -> None:
    """Absent apiVersion and kind are filled in from the URL, wrong ones are refused."""
    version, kind = document.get("apiVersion"), document.get("kind")
    if kind not in (None, "", resource.kind):
        raise ApiError(
            400,
            "BadRequest",
            f"the object is a {kind!r}, but {resource.plural or 'this request'} takes kind {resource.kind!r}",
        )
    # clients put the API group of the thing to delete into their DeleteOptions
    if version not in (None, "", resource.api_version) and resource is not DELETE_OPTIONS:
        raise ApiError(
            400,
            "BadRequest",
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})",
        )
    if resource is DELETE_OPTIONS:
        document.pop("apiVersion", None)


def _json(body: bytes, resource: Resource) -> _Parsed:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise _unreadable(resource, f"json parse error: {error or 'nested too deeply'}") from error
    return _Parsed(document, _json_duplicates(body))


def _json_duplicates(body: bytes) -> tuple[str, ...]:
    """Paths of fields given more than once. A second parse, since msgspec keeps the last and says nothing."""
    found: list[tuple[dict[str, Any], str]] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(items)
        if len(built) != len(items):
            times = Counter(key for key, _ in items)
            found.extend((built, key) for key, count in times.items() if count > 1)
        return built

    try:
        document = json.loads(body, object_pairs_hook=pairs)
        return tuple(
            f"{path}.{key}" if path else key
            for owner, path in (_objects(document, "") if found else ())
            for one, key in found
            if one is owner
        )
    except (ValueError, RecursionError):
        return ()  # msgspec has read it; what is nested this deep is no field of ours


def _objects(value: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        yield value, path
        for key, inner in value.items():
            yield from _objects(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _objects(inner, f"{path}[{index}]")


def _yaml(body: bytes, resource: Resource) -> _Parsed:
    try:
        found = [d for d in yamltext.documents(body) if d.value is not None]
    except BadInput as error:
        raise _unreadable(resource, error.message) from error
    if len(found) != 1:
        raise _unreadable(resource, f"one YAML document belongs here, {len(found)} came")
    return _Parsed(found[0].value, found[0].duplicates)


def _protobuf(body: bytes, resource: Resource) -> _Parsed:
    try:
        envelope = protobuf.open_envelope(body)
        kind = {"apiVersion": envelope.api_version, "kind": envelope.kind}
        _check_kind(kind, resource)  # first: the bytes of another kind would only seem damaged
        document = protobuf.decode(struct_of(resource), envelope.raw)
    except protobuf.Malformed as error:
        raise _unreadable(resource, f"not a protobuf body: {error}") from error
    return _Parsed({**document, **kind})


def _unreadable(resource: Resource, why: str) -> ApiError:
    return ApiError(400, "BadRequest", f"the body cannot be read (must be a {resource.kind}): {why}")


def _bad(resource: Resource, why: str) -> ApiError:
    return ApiError(
        400,
        "BadRequest",
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}',
    )


def _word(value: Any) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "a list"
        case str():
            return "a string"
        case _:
            return str(value)[:40]
