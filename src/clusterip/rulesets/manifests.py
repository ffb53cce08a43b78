"""API objects as people keep them: YAML or JSON, several documents, lists of kinds, what `kubectl get -o yaml` prints.

Kinds that nothing here reads are named, not dropped in silence. Sources of secrets are never kept.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from clusterip.errors import BadInput
from clusterip.model import objects as o
from clusterip.model.status import Object
from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading


class Manifest(Struct, frozen=True):
    api_version: str
    kind: str
    namespace: str  # "" for kinds that have none; "default" where a namespaced kind leaves it out
    name: str
    document: Object  # as given, null fields left out; of a Secret only its name
    value: o.Value | None = None  # None: no kind that is read as values
    line: int = 0  # of its document in the file
    problem: str = ""  # why it could not be read although its kind is known


class Manifests(Struct, frozen=True):
    manifests: tuple[Manifest, ...] = ()


KINDS: dict[tuple[str, str], type[o.Value]] = {
    ("v1", "Service"): o.Service,
    ("v1", "Endpoints"): o.Endpoints,
    ("v1", "Pod"): o.Pod,
    ("v1", "Node"): o.Node,
    ("v1", "Namespace"): o.Namespace,
    ("v1", "ConfigMap"): o.ConfigMap,
    ("v1", "Event"): o.Event,
    ("discovery.k8s.io/v1", "EndpointSlice"): o.EndpointSlice,
    ("discovery.k8s.io/v1beta1", "EndpointSlice"): o.EndpointSlice,
    ("apps/v1", "Deployment"): o.Deployment,
    ("apps/v1", "ReplicaSet"): o.ReplicaSet,
    ("networking.k8s.io/v1", "ServiceCIDR"): o.ServiceCIDR,
    ("networking.k8s.io/v1", "IPAddress"): o.IPAddress,
}
_LINE = re.compile(r"line (\d+), column \d+: ")
_WITHOUT_NAMESPACE = frozenset(
    {"Node", "Namespace", "ServiceCIDR", "IPAddress", "KubeProxyConfiguration", "ClusterRole"}
)


def read(text: str, origin: Origin = INPUT) -> Reading[Manifests]:
    """YAML or JSON. What comes before a document that is no YAML is kept."""
    from clusterip.model.yamltext import documents  # brings PyYAML along, which dumps of kernels do not need

    problems = Problems(origin)
    found: list[Manifest] = []
    starts = _document_lines(text)
    try:
        for number, document in enumerate(documents(text)):
            line = starts[number] if number < len(starts) else 0
            for key in document.duplicates:
                problems.add(line, f"the key {key} is given twice; the last one counts")
            if document.value is not None:
                found += _manifests(document.value, line, origin, problems)
    except BadInput as error:
        where = _LINE.search(error.message)
        problems.add(int(where[1]) - 1 if where else 0, _LINE.sub("", error.message))
    return Reading(Manifests(tuple(found)), len(found), problems.all())


def _document_lines(text: str) -> list[int]:
    """The first line of each YAML document, from 0."""
    starts = [0]
    marked = content = False
    for number, line in enumerate(text.split("\n")):
        if line[:3] == "---" and not line[3:4].strip():
            if marked or content:
                starts.append(number + 1)
            else:
                starts[-1] = number + 1
            marked, content = True, False
        elif line.strip() and not line.lstrip().startswith("#"):
            content = True
    return starts


def of_document(value: object, origin: Origin = INPUT) -> Reading[Manifests]:
    """Of a JSON document that is already decoded."""
    problems = Problems(origin)
    found = tuple(_manifests(value, 0, origin, problems))
    return Reading(Manifests(found), len(found), problems.all())


def _manifests(value: object, line: int, origin: Origin, problems: Problems) -> Iterator[Manifest]:
    """The objects in one document, lists taken apart however deep."""
    waiting: list[tuple[object, str, str]] = [(value, "", "")]
    while waiting:
        current, version, kind = waiting.pop()
        if isinstance(current, list):
            waiting += [(item, "", "") for item in reversed(current)]
            continue
        if not isinstance(current, dict):
            problems.add(line, f"an object was expected, not {type(current).__name__}")
            continue
        version, kind = current.get("apiVersion", version), current.get("kind", kind)
        if not (isinstance(version, str) and isinstance(kind, str) and version and kind):
            problems.add(line, "apiVersion and kind do not say what this object is")
        elif kind.endswith("List") and isinstance(current.get("items"), list):
            of = (version, kind.removesuffix("List")) if kind != "List" else ("", "")
            waiting += [(item, *of) for item in reversed(current["items"])]
        else:
            manifest = _manifest(current, version, kind, origin.line + line)
            if manifest.problem:
                problems.add(line, manifest.problem)
            yield manifest


def _manifest(document: dict[str, Any], version: str, kind: str, line: int) -> Manifest:
    meta = document.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    name, namespace = meta.get("name"), meta.get("namespace")
    name = name if isinstance(name, str) else ""
    namespace = namespace if isinstance(namespace, str) else ""
    if not namespace and kind not in _WITHOUT_NAMESPACE:
        namespace = "default"
    as_type = KINDS.get((version, kind))
    if kind == "Secret":
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    if as_type is None:
        return Manifest(version, kind, namespace, name, document, line=line)
    document = _without_nulls(document)
    document["metadata"] = {**_meta(document), "namespace": namespace}
    try:
        value = msgspec.convert(document, as_type)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        place = at.rstrip("`").lstrip(".") or "the object"
        problem = f"{kind} {namespace}/{name}: {place}: {what[:1].lower()}{what[1:]}"
        return Manifest(version, kind, namespace, name, document, line=line, problem=problem)
    return Manifest(version, kind, namespace, name, document, value, line)


def _meta(document: dict[str, Any]) -> dict[str, Any]:
    meta = document.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """Go writes null for what is absent. Depth is bounded: the parsers refuse documents nested without end."""

    def pruned(current: Any) -> Any:
        if isinstance(current, dict):
            return {key: pruned(item) for key, item in current.items() if item is not None}
        return [pruned(item) for item in current] if isinstance(current, list) else current

    return {key: pruned(item) for key, item in value.items() if item is not None}
