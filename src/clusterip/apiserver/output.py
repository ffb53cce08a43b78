"""Answers in the form the client asked for: JSON, YAML, `Table`, or metadata alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec
import yaml

from clusterip.apiserver import documents
from clusterip.apiserver.refusals import not_acceptable
from clusterip.apiserver.registry import Listed
from clusterip.model.resources import Resource
from clusterip.model.status import ApiError, Object
from clusterip.model.tables import partial, table
from clusterip.store.base import Item

JSON, YAML = "application/json", "application/yaml"
_META = "meta.k8s.io"


class Form(Enum):
    JSON = "json"
    YAML = "yaml"
    TABLE = "table"
    PARTIAL = "partial"  # PartialObjectMetadata


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, ready for the wire."""

    body: bytes
    code: int = 200
    media_type: str = JSON
    warnings: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


def negotiate(accept: str) -> Form:
    """The first form of the header that we have. Raises ApiError 406."""
    if not accept.strip():
        return Form.JSON
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        said = dict(p.split("=", 1) for p in parameters if "=" in p)
        match media.lower(), said.get("as"), said.get("g"), said.get("v"):
            case "application/json", "Table", "meta.k8s.io", "v1":
                return Form.TABLE
            case "application/json", "PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1":
                return Form.PARTIAL
            case "application/json" | "application/*" | "*/*", None, _, _:
                return Form.JSON
            case "application/yaml", None, _, _:
                return Form.YAML
    raise not_acceptable((JSON, YAML))


@dataclass(frozen=True, slots=True)
class Renderer:
    """How one request wants its objects. `include`: what each row of a table carries."""

    resource: Resource
    form: Form
    include: str
    now: Callable[[], float]  # seconds since the epoch, for the ages in tables

    def one(self, item: Item, *, code: int = 200, warnings: tuple[str, ...] = ()) -> Answer:
        match self.form:
            case Form.JSON:
                return Answer(documents.body(item), code, JSON, warnings)
            case Form.YAML:
                return Answer(to_yaml(documents.decode(item)), code, YAML, warnings)
            case Form.TABLE:
                return Answer(self.table([documents.decode(item)], str(item.revision)), code, JSON, warnings)
            case Form.PARTIAL:
                return Answer(msgspec.json.encode(partial(documents.decode(item))), code, JSON, warnings)

    def many(self, listed: Listed) -> Answer:
        match self.form:
            case Form.JSON:
                return Answer(self._list(listed, map(documents.body, listed.items)))
            case Form.YAML:
                return Answer(
                    to_yaml(msgspec.json.decode(self._list(listed, map(documents.body, listed.items)))), 200, YAML
                )
            case Form.TABLE:
                rows = table(
                    self.resource,
                    map(documents.decode, listed.items),
                    now=self.now(),
                    include=self.include,
                    resource_version=str(listed.revision),
                    remaining=listed.remaining,
                    continue_token=listed.token,
                )
                return Answer(msgspec.json.encode(rows))
            case Form.PARTIAL:
                parts = (msgspec.json.encode(partial(documents.decode(item))) for item in listed.items)
                return Answer(self._list(listed, parts, f"{_META}/v1", "PartialObjectMetadata"))

    def _list(self, listed: Listed, parts: Iterable[bytes], version: str = "", kind: str = "") -> bytes:
        metadata: Object = {"resourceVersion": str(listed.revision)}
        if listed.token:
            metadata["continue"] = listed.token
        if listed.remaining:
            metadata["remainingItemCount"] = listed.remaining
        start: Object = {
            "kind": f"{kind or self.resource.kind}List",
            "apiVersion": version or self.resource.api_version,
            "metadata": metadata,
        }
        return msgspec.json.encode(start)[:-1] + b',"items":[' + b",".join(parts) + b"]}"

    def table(self, objs: Sequence[Object], version: str, *, with_definitions: bool = True) -> bytes:
        return msgspec.json.encode(
            table(
                self.resource,
                objs,
                now=self.now(),
                include=self.include,
                resource_version=version,
                with_definitions=with_definitions,
            )
        )


def to_yaml(document: Object) -> bytes:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(document, Dumper=dumper, sort_keys=True, default_flow_style=False, encoding="utf-8")


def refusal(error: ApiError, form: Form = Form.JSON) -> Answer:
    """An error as the client's form can carry it."""
    status = error.status()
    headers = (("Retry-After", "1"),) if error.code in (429, 503, 504) else ()
    if form is Form.YAML:
        return Answer(to_yaml(status), error.code, YAML, headers=headers)
    return Answer(msgspec.json.encode(status), error.code, headers=headers)


def document(obj: Object, code: int = 200) -> Answer:
    return Answer(msgspec.json.encode(obj), code)
