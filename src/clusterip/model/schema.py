"""The shapes of the API's kinds, read from the JSON schemas of Kubernetes 1.36 that `kubernetes-validate` ships.

One source serves decoding, patches, protobuf and OpenAPI, so no field is typed in twice. The file is found without
importing the package, whose own imports (jsonschema and its family) we do not need, and is read once, on first use.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from clusterip.errors import Unavailable
from clusterip.model.resources import Resource
from clusterip.model.status import Object

ANNOUNCED_VERSION = "1.36.0"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"

# Definitions that are one JSON value, not an object of fields.
_SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    f"{META}.Time": "time",
    f"{META}.MicroTime": "microtime",
    f"{META}.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
}
_NUMBERS = {"int32": "int32", "int64": "int64", "double": "float64"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """`word` is Go's name for it (string, bool, int32, int64, float64) or one of: bytes (base64), time, microtime,
    quantity, int-or-string, any."""

    word: str


@dataclass(frozen=True, slots=True)
class Sequence:
    item: "Type"


@dataclass(frozen=True, slots=True)
class Table:
    """A JSON object with free keys."""

    value: "Type"


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object with known fields; `name` is the schema's full name."""

    name: str

    @property
    def short(self) -> str:
        """As Go names it in messages: "ServicePort"."""
        return self.name.rpartition(".")[2]


Type: TypeAlias = Scalar | Sequence | Table | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, with what patches need to know about it."""

    type: Type
    required: bool
    strategies: frozenset[str]  # of strategic merge: "merge", "replace", "retainKeys"
    merge_key: str  # "" for lists of scalars, and where lists are replaced


@cache
def definitions() -> Mapping[str, Object]:
    """Every definition of the release by its full name. Treat as read-only."""
    spec = importlib.util.find_spec("kubernetes_validate")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "API schemas: package kubernetes-validate is not installed", "pip install 'clusterip[cluster]'"
        )
    folder = Path(spec.origin).parent / "kubernetes-json-schema" / f"v{ANNOUNCED_VERSION}-local"
    try:
        document = msgspec.json.decode((folder / "_definitions.json").read_bytes())
    except OSError as error:
        raise Unavailable(
            f"API schemas: {folder} cannot be read: {error.strerror}", "pip install -U kubernetes-validate"
        ) from error
    found: dict[str, Object] = document["$defs"]
    return found


@cache
def _by_kind() -> Mapping[tuple[str, str, str], str]:
    """(group, version, kind) -> definition name."""
    return {
        (entry["group"], entry["version"], entry["kind"]): name
        for name, definition in definitions().items()
        for entry in definition.get("x-kubernetes-group-version-kind", ())
    }


def struct_of(resource: Resource) -> Struct:
    """The shape of one kind."""
    return Struct(_by_kind()[(resource.group, resource.version, resource.kind)])


@cache
def fields(struct: Struct) -> Mapping[str, Field]:
    """The fields of a struct by JSON name."""
    definition = definitions()[struct.name]
    required = frozenset(definition.get("required", ()))
    return {
        name: Field(
            type=_type(schema),
            required=name in required,
            strategies=frozenset(filter(None, schema.get("x-kubernetes-patch-strategy", "").split(","))),
            merge_key=schema.get("x-kubernetes-patch-merge-key", ""),
        )
        for name, schema in definition.get("properties", {}).items()
    }


def _type(schema: Mapping[str, Any]) -> Type:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        special = _SPECIAL.get(name)
        return Scalar(special) if special else Struct(name)
    declared = schema.get("type", "any")
    word = next((w for w in declared if w != "null"), "any") if isinstance(declared, list) else declared
    match word:
        case "string":
            return Scalar("bytes" if schema.get("format") == "byte" else "string")
        case "boolean":
            return Scalar("bool")
        case "integer" | "number":
            return Scalar(_NUMBERS[schema.get("format", "int64" if word == "integer" else "double")])
        case "array":
            return Sequence(_type(schema["items"]))
        case "object" if "additionalProperties" in schema:
            return Table(_type(schema["additionalProperties"]))
        case _:
            return Scalar("any")


def go_name(of: Type) -> str:
    """A type as Go's JSON decoder names it in errors: "[]v1.ServicePort"."""
    match of:
        case Scalar(word):
            return word
        case Sequence(item):
            return f"[]{go_name(item)}"
        case Table(value):
            return f"map[string]{go_name(value)}"
        case Struct(name):
            return ".".join(name.rsplit(".", 2)[1:])
