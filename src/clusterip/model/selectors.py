"""Which objects a query means: label selectors and field selectors, from their text and from their API form."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterip.model import names, objects
from clusterip.model.resources import (
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Resource,
)
from clusterip.model.status import ApiError, Object

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SYMBOLS = frozenset(["==", "!=", "=", "!", "<", ">", "(", ")", ","])
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt":
                return _compare(value, self.values, lambda have, limit: have > limit)
            case "Lt":
                return _compare(value, self.values, lambda have, limit: have < limit)
            case _:
                return False


@dataclass(frozen=True, slots=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """All requirements hold; without any, everything matches."""
        return all(requirement.matches(labels or {}) for requirement in self.requirements)


def _compare(value: str | None, limits: frozenset[str], holds: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and all(holds(int(value), int(limit)) for limit in limits)
    except ValueError:
        return False


def parse_labels(text: str) -> LabelSelector:
    """`app=web,tier in (a,b),!canary`. Raises ApiError 400."""
    reader = _Reader(text)
    requirements: list[Requirement] = []
    while reader.ahead:
        requirements.append(reader.requirement())
        if reader.ahead and reader.take() != ",":
            raise reader.error("requirements are separated by ','")
        if not reader.ahead and reader.previous == ",":
            raise reader.error("a key belongs after ','")
    return LabelSelector(tuple(requirements))


class _Reader:
    """Reads one label selector, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    @property
    def ahead(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    @property
    def previous(self) -> str:
        return self.tokens[self.at - 1] if self.at else ""

    def take(self) -> str:
        token = self.ahead
        self.at += 1
        return token

    def error(self, why: str) -> ApiError:
        return ApiError(400, "BadRequest", f"unable to parse requirement: label selector {self.text!r}: {why}")

    def requirement(self) -> Requirement:
        absent = self.ahead == "!"
        if absent:
            self.take()
        key = self.take()
        if wrong := names.qualified_name(key):
            raise self.error(f"key {key!r}: {wrong}")
        if absent:
            return Requirement(key, "DoesNotExist")
        if self.ahead in ("", ","):
            return Requirement(key, "Exists")
        sign = self.take()
        operator = _OPERATORS.get(sign)
        if operator is None:
            raise self.error(f"{sign!r} is none of the operators = == != in notin < >")
        values = self._list() if sign in ("in", "notin") else frozenset((self._value(),))
        if operator in ("Gt", "Lt") and not all(re.fullmatch(r"[+-]?\d{1,19}", value) for value in values):
            raise self.error(f"{sign!r} needs an integer")
        return Requirement(key, operator, values)

    def _value(self) -> str:
        value = "" if self.ahead in _SYMBOLS or not self.ahead else self.take()
        if wrong := names.label_value(value):
            raise self.error(f"value {value!r}: {wrong}")
        return value

    def _list(self) -> frozenset[str]:
        if self.take() != "(":
            raise self.error("'(' belongs after in and notin")
        values = {self._value()}
        while self.ahead == ",":
            self.take()
            values.add(self._value())
        if self.take() != ")":
            raise self.error("')' is missing")
        return frozenset(values)


def from_value(selector: objects.LabelSelector) -> LabelSelector:
    """The selector in a ReplicaSet's or Deployment's spec, ready to match many."""
    exact = tuple(Requirement(key, "In", frozenset((value,))) for key, value in selector.match_labels.items())
    return LabelSelector(
        exact + tuple(Requirement(e.key, e.operator, frozenset(e.values)) for e in selector.match_expressions)
    )


def matches_selector(selector: objects.LabelSelector, labels: Mapping[str, str] | None) -> bool:
    return from_value(selector).matches(labels)


# --- field selectors -------------------------------------------------------------------------------------------

_EVERYWHERE = frozenset(("metadata.name", "metadata.namespace"))
_FIELDS: dict[Resource, frozenset[str]] = {
    PODS: frozenset(
        [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    ),
    SERVICES: frozenset(("spec.clusterIP", "spec.type")),
    NODES: frozenset(("spec.unschedulable",)),
    NAMESPACES: frozenset(("status.phase",)),
    REPLICA_SETS: frozenset(("status.replicas",)),
    EVENTS: frozenset(
        [
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    ),
}
_UNSET = {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.replicas": "0"}


@dataclass(frozen=True, slots=True)
class FieldTerm:
    path: str
    value: str
    equal: bool

    def matches(self, obj: Object) -> bool:
        return (_field(obj, self.path) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class FieldSelector:
    terms: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Object) -> bool:
        return all(term.matches(obj) for term in self.terms)

    def required(self, path: str) -> str | None:
        """The one value that `path` must have, if the selector says so: lets a list become a get."""
        return next((term.value for term in self.terms if term.equal and term.path == path), None)


def parse_fields(text: str, resource: Resource) -> FieldSelector:
    """`spec.nodeName=node-1,status.phase!=Failed`. Raises ApiError 400, also for fields the kind cannot select by."""
    return FieldSelector(tuple(_term(part, resource) for part in re.split(r"(?<!\\),", text) if part.strip()))


def _term(part: str, resource: Resource) -> FieldTerm:
    matched = re.match(r"\s*([^=!]*?)\s*(==|!=|=)(.*)", part, re.DOTALL)
    if not matched:
        raise ApiError(400, "BadRequest", f"invalid field selector: {part!r}: write field=value or field!=value")
    path, sign, value = matched.groups()
    if path not in _EVERYWHERE and path not in _FIELDS.get(resource, frozenset()):
        known = sorted(_EVERYWHERE | _FIELDS.get(resource, frozenset()))
        raise ApiError(400, "BadRequest", f"field label not supported: {path}", hint=f"supported: {', '.join(known)}")
    return FieldTerm(path, re.sub(r"\\([\\,=])", r"\1", value), sign != "!=")


def _field(obj: Object, path: str) -> str:
    if path == "source":
        return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    match value:
        case None:
            return _UNSET.get(path, "")
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(str(item.get("ip", "")) if isinstance(item, dict) else str(item) for item in value)
        case _:
            return str(value)
