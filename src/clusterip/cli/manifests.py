"""Manifests as people keep them -> Services and EndpointSlices: several documents a file, YAML or JSON, lists of kinds.

Everything that can be wrong is said with the file, the document and, where it can be found, the line.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import yaml

from clusterip.errors import BadInput
from clusterip.model.names import dns_label
from clusterip.model.objects import EndpointSlice, Service
from clusterip.model.resources import ENDPOINT_SLICES, SERVICES
from clusterip.model.yamltext import documents
from clusterip.services.addresses import canonical_address
from clusterip.services.table import FAMILIES

Wanted: TypeAlias = Service | EndpointSlice

KINDS: dict[tuple[str, str], type[Wanted]] = {
    (SERVICES.api_version, SERVICES.kind): Service,
    (ENDPOINT_SLICES.api_version, ENDPOINT_SLICES.kind): EndpointSlice,
}
_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Manifests:
    services: tuple[Service, ...]
    slices: tuple[EndpointSlice, ...]
    passed_over: tuple[str, ...]  # one sentence for each document that is of no use here


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: for messages."""

    file: str
    text: bytes
    document: int  # counted from 1
    path: tuple[str | int, ...] = ()

    def error(self, what: str, path: Sequence[str | int] = ()) -> BadInput:
        line = _line(self.text, self.document, (*self.path, *path))
        return BadInput(f"{self.file}: document {self.document}{f', line {line}' if line else ''}: {what}")

    def item(self, *path: str | int) -> "_Place":
        return _Place(self.file, self.text, self.document, (*self.path, *path))


def read(files: Sequence[str]) -> Manifests:
    """`files` in order; "-" is stdin. An object given twice counts as last given. Raises BadInput."""
    services: dict[tuple[str, str], Service] = {}
    slices: dict[tuple[str, str], EndpointSlice] = {}
    passed_over: list[str] = []
    for file in files:
        for found in _objects(file):
            match found:
                case Service(metadata=meta):
                    services[meta.namespace, meta.name] = found
                case EndpointSlice(metadata=meta):
                    slices[meta.namespace, meta.name] = found
                case str():
                    passed_over.append(found)
    return Manifests(tuple(services.values()), tuple(slices.values()), tuple(passed_over))


def _objects(file: str) -> Iterator[Wanted | str]:
    name, text = _text(file)
    number, empty = 0, True
    try:
        for number, document in enumerate(documents(text), start=1):
            place = _Place(name, text, number)
            empty = empty and document.value is None
            if document.duplicates:
                raise place.error(f"the key {document.duplicates[0]} is given twice")
            if document.value is not None:
                yield from _unpacked(document.value, place)
        if empty:
            yield f"{name}: holds no object"
    except BadInput as error:
        if error.message.startswith(f"{name}: "):
            raise
        raise BadInput(f"{name}: document {number + 1}: {error.message}", error.hint) from error


def _text(file: str) -> tuple[str, bytes]:
    if file == "-":
        return "stdin", sys.stdin.buffer.read()
    try:
        return file, Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from error


def _unpacked(value: Any, place: _Place, inherited: tuple[str, str] = ("", "")) -> Iterator[Wanted | str]:
    """The objects in one document, lists taken apart. `inherited`: what a typed list says its items are."""
    if not isinstance(value, dict):
        raise place.error(f"an object was expected, not {type(value).__name__}")
    version, kind = value.get("apiVersion", inherited[0]), value.get("kind", inherited[1])
    if not isinstance(version, str) or not isinstance(kind, str) or not (version and kind):
        raise place.error("apiVersion and kind must say what this object is")
    if kind.endswith("List") and isinstance(value.get("items"), list):
        of = (version, kind.removesuffix("List")) if kind != "List" else ("", "")
        for index, item in enumerate(value["items"]):
            yield from _unpacked(item, place.item("items", index), of)
    elif as_type := KINDS.get((version, kind)):
        yield _converted(value, as_type, place)
    else:
        yield f"{place.file}: document {place.document}: {kind} ({version}) passed over"


def _converted(value: dict[str, Any], as_type: type[Wanted], place: _Place) -> Wanted:
    try:
        found = msgspec.convert(_without_nulls(value), as_type)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        path = _path(at.rstrip("`"))
        shown = at.rstrip("`").lstrip(".") or "the object"
        raise place.error(f"{as_type.__name__}: {shown}: {what[:1].lower()}{what[1:]}", path) from error
    for at_fault, sentence in _impossible(found):
        raise place.error(f"{as_type.__name__}: {_shown(at_fault)}: {sentence}", at_fault)
    return _completed(found, place)


def _completed(found: Wanted, place: _Place) -> Wanted:
    """What an API server fills in, as far as it decides anything here; and the names it would refuse."""
    kind, meta = type(found).__name__, found.metadata
    meta = msgspec.structs.replace(meta, namespace=meta.namespace or "default")
    if problem := dns_label(meta.namespace):
        raise place.error(f"{kind}: metadata.namespace {meta.namespace!r}: {problem}", ("metadata", "namespace"))
    if isinstance(found, EndpointSlice):
        ports = tuple(msgspec.structs.replace(p, name=p.name or "") for p in found.ports or ())
        return msgspec.structs.replace(found, metadata=meta, ports=ports)
    if problem := dns_label(meta.name):
        raise place.error(f"{kind}: metadata.name {meta.name!r}: {problem}", ("metadata", "name"))
    for index, port in enumerate(found.spec.ports or ()):
        if port.name and (problem := dns_label(port.name)):
            path = ("spec", "ports", index, "name")
            raise place.error(f"{kind}: spec.ports[{index}].name {port.name!r}: {problem}", path)
    return msgspec.structs.replace(found, metadata=meta)


def _impossible(found: Wanted) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What no API server ever took, as a path and a sentence. Older ones took more than today's, so the rest stands."""
    if isinstance(found, EndpointSlice):
        for index, endpoint in enumerate(found.endpoints or ()):
            for at, text in enumerate(endpoint.addresses if found.address_type in FAMILIES else ()):
                if not _is_address(text):
                    yield ("endpoints", index, "addresses", at), f"{text!r} is no IP address"
        for index, offered in enumerate(found.ports or ()):
            yield from _no_port(("ports", index, "port"), offered.port or 0)
        return
    if found.spec.type not in _TYPES:
        yield ("spec", "type"), f"{found.spec.type!r} is none of {', '.join(_TYPES)}"
    if found.spec.cluster_ip not in ("", "None") and not _is_address(found.spec.cluster_ip):
        yield ("spec", "clusterIP"), f"{found.spec.cluster_ip!r} is no IP address"
    for index, port in enumerate(found.spec.ports or ()):
        where: tuple[str | int, ...] = ("spec", "ports", index)
        yield from _no_port((*where, "port"), port.port, least=1)
        yield from _no_port((*where, "nodePort"), port.node_port)
        if port.protocol not in _PROTOCOLS:
            yield (*where, "protocol"), f"{port.protocol!r} is none of {', '.join(_PROTOCOLS)}"


def _no_port(path: tuple[str | int, ...], number: int, least: int = 0) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """0 where a port may be left out."""
    if not least <= number <= _LAST_PORT:
        yield path, f"{number} is no port, they go from 1 to {_LAST_PORT}"


def _is_address(text: str) -> bool:
    return any(canonical_address(text, family) for family in FAMILIES)


def _without_nulls(value: Any) -> Any:
    """In the API a null is the same as nothing."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def _path(text: str) -> tuple[str | int, ...]:
    """msgspec's way of saying where: ".spec.ports[0].port"."""
    parts = text.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdecimal() else part for part in parts if part)


def _shown(path: Sequence[str | int]) -> str:
    """The other way round."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _line(text: bytes, document: int, path: Sequence[str | int]) -> int:
    """The line of the value at `path`, or of the last part of it that is there; 0: not known."""
    try:
        nodes = yaml.compose_all(text, Loader=yaml.CSafeLoader)
        node = next(node for number, node in enumerate(nodes, start=1) if number == document)
    except (StopIteration, yaml.YAMLError):
        return 0
    for part in path:
        match node:
            case yaml.MappingNode(value=pairs):
                inner = next((value for key, value in pairs if key.value == str(part)), None)
            case yaml.SequenceNode(value=items) if isinstance(part, int) and part < len(items):
                inner = items[part]
            case _:
                inner = None
        if inner is None:
            break
        node = inner
    return int(node.start_mark.line) + 1 if node else 0
