"""Rules for the kinds that only keep something: ConfigMap, Lease, Event, Namespace."""

import re

from clusterip.model.causes import IMMUTABLE, duplicate, forbidden, invalid, required, too_long
from clusterip.model.status import Cause, Object

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DATA_LIMIT = 1024 * 1024  # bytes
_DEFAULT_NAMESPACE = "default"


def validate_config_map(obj: Object, old: Object | None) -> list[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes = [
        invalid(f"{name}[{key}]", key, "a valid config key is letters, digits, '-', '_' or '.'")
        for name, part in (("data", data), ("binaryData", binary))
        for key in part
        if not _KEY.fullmatch(key) or key in (".", "..")
    ]
    causes += [duplicate(f"data[{key}]", key) for key in data if key in binary]
    if sum(len(value.encode()) for part in (data, binary) for value in part.values()) > _DATA_LIMIT:
        causes.append(too_long("", _DATA_LIMIT))
    if old is not None and old.get("immutable"):
        causes += [
            forbidden(name, f"{IMMUTABLE} when `immutable` is set")
            for name in ("immutable", "data", "binaryData")
            if (obj.get(name) or None) != (old.get(name) or None)
        ]
    return causes


def validate_lease(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def validate_event(obj: Object, old: Object | None) -> list[Cause]:
    about = obj.get("involvedObject") or {}
    namespace = obj["metadata"].get("namespace") or ""
    # what has no namespace is reported in the default one
    if (about.get("namespace") or _DEFAULT_NAMESPACE) != namespace:
        return [invalid("involvedObject.namespace", about.get("namespace"), "does not match event.namespace")]
    return [] if about else [required("involvedObject")]


def validate_namespace(obj: Object, old: Object | None) -> list[Cause]:
    return [
        invalid(f"spec.finalizers[{index}]", finalizer, "must be kubernetes or a qualified name with a '/'")
        for index, finalizer in enumerate((obj.get("spec") or {}).get("finalizers") or ())
        if finalizer != "kubernetes" and "/" not in finalizer
    ]
