"""Causes as the API words them, so that clients that match on reason and text find what they look for."""

import json
from collections.abc import Iterable
from typing import Any

from clusterip.model.status import Cause

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


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
