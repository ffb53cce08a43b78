"""Rules for `metadata`: names by kind, labels, annotations, owners, finalizers."""

from collections.abc import Callable, Iterator, Mapping

from clusterip.model import names, resources
from clusterip.model.causes import invalid, required, too_long
from clusterip.model.resources import Resource
from clusterip.model.status import Cause, Object

_ANNOTATIONS_LIMIT = 256 * 1024  # bytes of all keys and values together
_PATH_SEGMENT = ("/", "%")
_NAME_RULES: dict[Resource, Callable[[str], str]] = {
    resources.SERVICES: names.dns_label,
    resources.NAMESPACES: names.dns_label,
    # its name is an address; networking.validate_ip_address has the rule
    resources.IP_ADDRESSES: lambda _: "",
    resources.EVENTS: lambda text: "" if not any(c in text for c in _PATH_SEGMENT) else "may not contain '/' or '%'",
}


def validate_name(resource: Resource, obj: Object) -> Iterator[Cause]:
    """Names are checked once: what is stored keeps its name even if the rule changes."""
    name = obj["metadata"].get("name") or ""
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif wrong := _NAME_RULES.get(resource, names.dns_subdomain)(name):
        yield invalid("metadata.name", name, wrong)


def validate(obj: Object) -> Iterator[Cause]:
    meta = obj["metadata"]
    yield from labels(meta.get("labels"), "metadata.labels")
    yield from _annotations(meta.get("annotations") or {})
    yield from _owners(meta.get("ownerReferences") or [])
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        if wrong := names.qualified_name(finalizer):
            yield invalid(f"metadata.finalizers[{index}]", finalizer, wrong)


def labels(found: Mapping[str, str] | None, field: str) -> Iterator[Cause]:
    for key, value in (found or {}).items():
        if wrong := names.qualified_name(key):
            yield invalid(field, key, wrong)
        if wrong := names.label_value(value):
            yield invalid(field, value, wrong)


def _annotations(found: Mapping[str, str]) -> Iterator[Cause]:
    for key in found:
        if wrong := names.qualified_name(key.lower()):
            yield invalid("metadata.annotations", key, wrong)
    if sum(len(key) + len(value.encode()) for key, value in found.items()) > _ANNOTATIONS_LIMIT:
        yield too_long("metadata.annotations", _ANNOTATIONS_LIMIT)


def _owners(found: list[Object]) -> Iterator[Cause]:
    controllers = []
    for index, owner in enumerate(found):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield required(f"metadata.ownerReferences[{index}].{name}", "must not be empty")
        if owner.get("controller"):
            controllers.append(owner.get("name", ""))
    if len(controllers) > 1:
        yield invalid("metadata.ownerReferences", controllers, "only one reference can have controller set to true")
