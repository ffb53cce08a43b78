"""Errors of the API: each is a Kubernetes `Status` with code, reason and causes."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from clusterip.errors import ClusterIPError

Object: TypeAlias = dict[str, Any]  # a JSON document: the whole of one API object, known fields or not


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field. `reason`: FieldValueInvalid, FieldValueRequired, FieldValueNotSupported,
    FieldValueDuplicate, FieldValueForbidden, FieldValueTooMany, FieldValueTooLong, FieldValueTypeInvalid."""

    field: str  # "spec.ports[0].nodePort"
    reason: str
    message: str


class ApiError(ClusterIPError):
    """`code` is the HTTP status, `reason` the machine-readable word that clients match on."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Object | None = None,
        causes: tuple[Cause, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.reason = reason
        self.details = details
        self.causes = causes

    def status(self) -> Object:
        """The `Status` document that goes over the wire."""
        details = dict(self.details or {})
        if self.causes:
            details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in self.causes]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            # Empty is not missing: on "could not find the requested resource" kubectl looks into it unasked.
            **({"details": details} if details or self.details is not None else {}),
            "code": self.code,
        }
