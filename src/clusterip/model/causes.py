"""Causes as the API words them, so that clients that match on reason and text find what they look for."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from clusterip.model.resources import Resource
from clusterip.model.status import ApiError, Cause

IMMUTABLE = "field is immutable"
FIXED = "may not change once set"


def invalid(field: str, value: Any, why: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {why}")


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    listed = ", ".join(f'"{one}"' for one in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {listed}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")


def forbidden(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def too_many(field: str, count: int, limit: int) -> Cause:
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def refusal(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """The 422 that says all of it."""
    listed = [f"{cause.field}: {cause.message}" for cause in causes]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    return ApiError(
        422,
        "Invalid",
        f'{resource.kind}{f".{resource.group}" if resource.group else ""} "{name}" is invalid: {text}',
        details={"name": name, "group": resource.group, "kind": resource.kind},
        causes=tuple(causes),
    )


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
