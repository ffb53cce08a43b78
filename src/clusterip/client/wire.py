"""What goes over the wire, and how it is read: lists in pages, watch events, `Status` errors."""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Generic, TypeVar

import msgspec

from clusterip.errors import ClusterIPError
from clusterip.model.objects import Value
from clusterip.model.resources import Resource
from clusterip.model.status import ApiError, Cause, Object

T = TypeVar("T", bound=Value)
D = TypeVar("D")


class EventKind(Enum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    items: tuple[T, ...]
    resource_version: str  # watch from here


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """Of a BOOKMARK only `resource_version` means something. DELETED carries the last state."""

    kind: EventKind
    value: T
    resource_version: str


class ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "proceed": "continue"}):
    resource_version: str = ""
    proceed: str = ""


class Page(msgspec.Struct, Generic[T]):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: tuple[T, ...] | None = ()


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _VersionOnly(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _StatusCause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _StatusDetails(msgspec.Struct, rename="camel"):
    causes: list[_StatusCause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _StatusDetails | None = None


@cache
def decoder_of(as_type: type[D]) -> "msgspec.json.Decoder[D]":
    return msgspec.json.Decoder(as_type)


@cache
def page_decoder(as_type: type[T]) -> "msgspec.json.Decoder[Page[T]]":
    return msgspec.json.Decoder(Page[as_type])  # type: ignore[valid-type]  # the type is a value here, not a name


_event_decoder = msgspec.json.Decoder(_RawEvent)
_version_decoder = msgspec.json.Decoder(_VersionOnly)


def decode(decoder: "msgspec.json.Decoder[D]", body: bytes | msgspec.Raw, resource: Resource) -> D:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ClusterIPError(f"{resource.qualified}: the server's answer cannot be read, {error}") from None


def event(line: bytes, decoder: "msgspec.json.Decoder[T]", resource: Resource) -> WatchEvent[T]:
    raw = decode(_event_decoder, line, resource)
    if raw.type == "ERROR":
        raise api_error(0, bytes(raw.object))
    if raw.type not in EventKind.__members__:
        raise ClusterIPError(f"{resource.qualified}: a watch event is of the unknown type {raw.type!r}")
    value = decode(decoder, raw.object, resource)
    version = decode(_version_decoder, raw.object, resource)
    return WatchEvent(EventKind(raw.type), value, version.metadata.resource_version)


def encode(resource: Resource, obj: Value | Object) -> bytes:
    if isinstance(obj, dict):
        return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **obj})
    document: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **document})


def document(body: bytes, resource: Resource) -> Object:
    try:
        found: Object = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise ClusterIPError(f"{resource.qualified}: the server's answer cannot be read, {error}") from None
    return found


def api_error(code: int, body: bytes) -> ApiError:
    """From a `Status`; a body that is none (a load balancer's page) is quoted in short."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        text = " ".join(body[:200].decode(errors="replace").split())
        return ApiError(code, "", f"API server: answered {code}, {text or 'without a word'}")
    causes = (status.details.causes if status.details else None) or ()
    return ApiError(
        code or status.code,
        status.reason,
        status.message or f"API server: answered {code or status.code}",
        causes=tuple(Cause(c.field, c.reason, c.message) for c in causes),
    )
