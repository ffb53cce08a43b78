"""What a request asks for, from its path and its query. Pure."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from clusterip.apiserver.refusals import bad_request
from clusterip.model.resources import BY_PLURAL, NAMESPACES, Resource

Parameters: TypeAlias = Mapping[str, Sequence[str]]  # of the query; a name may come several times

# Every spelling that Go's strconv.ParseBool takes: clients in other languages send "True".
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("", "0", "f", "F", "FALSE", "false", "False"))
_PROPAGATION = ("Background", "Foreground", "Orphan")
_VALIDATION = ("Strict", "Warn", "Ignore")


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection (no `name`), an object, or a subresource of one."""

    resource: Resource
    namespace: str = ""  # "": of a namespaced collection, all namespaces
    name: str = ""
    subresource: str = ""
    rest: str = ""  # of the path, behind the subresource and its slash

    @property
    def key(self) -> str:
        """Of the object in the store."""
        return f"{self.prefix}{self.name}"

    @property
    def prefix(self) -> str:
        """Of the collection's objects in the store."""
        return f"/{self.resource.qualified}/{self.namespace}/" if self.namespace else f"/{self.resource.qualified}/"


def parse_path(path: str) -> Target | None:
    """None: no resource of ours has that path."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest] if group:
            pass
        case _:
            return None
    match rest:
        case ["namespaces", namespace, plural, *more] if namespace and (group, version, plural) in BY_PLURAL:
            resource = BY_PLURAL[group, version, plural]
            return _target(resource, namespace, more) if resource.namespaced else None
        case [plural, *more] if (group, version, plural) in BY_PLURAL:
            resource = BY_PLURAL[group, version, plural]
            return None if resource.namespaced and more else _target(resource, "", more)
        case _:
            return None


def _target(resource: Resource, namespace: str, rest: Sequence[str]) -> Target | None:
    match rest:
        case []:
            return Target(resource, namespace)
        case [""] | ["", *_]:
            return None
        case [name]:
            return Target(resource, namespace, name)
        case [name, subresource, *more] if subresource in resource.subresources:
            if more and subresource != "proxy":
                return None
            return Target(resource, namespace, name, subresource, "/".join(more))
        case _:
            return None


def namespace_of(target: Target) -> str:
    """The namespace that must exist before something is created there; "" if none."""
    return "" if target.resource is NAMESPACES else target.namespace


def text(parameters: Parameters, name: str) -> str:
    values = parameters.get(name)
    return values[0] if values else ""


def flag(parameters: Parameters, name: str) -> bool:
    value = text(parameters, name)
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise bad_request(f"query parameter {name}: {value!r} is neither true nor false")


def number(parameters: Parameters, name: str, default: int = 0) -> int:
    value = text(parameters, name)
    if not value:
        return default
    # 18 digits: beyond that nothing counts, and int() of a very long text costs time.
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise bad_request(f"query parameter {name}: {value!r} is not a number of 0 or more")
    return int(value)


def _one_of(parameters: Parameters, name: str, allowed: Sequence[str], default: str = "") -> str:
    value = text(parameters, name) or default
    if value and value not in allowed:
        raise bad_request(f"query parameter {name}: {value!r} is none of {', '.join(allowed)}")
    return value


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next page of a list begins, and the revision of its first page."""

    revision: int
    after: str

    def token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode([self.revision, self.after])).decode().rstrip("=")


def _position(token: str) -> Position | None:
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        revision, after = msgspec.json.decode(
            base64.b64decode(padded, altchars=b"-_", validate=True), type=tuple[int, str]
        )
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise bad_request("continue key is not valid: it must be what the last page of the list gave") from error
    return Position(revision, after)


@dataclass(frozen=True, slots=True)
class ListQuery:
    label_selector: str
    field_selector: str
    limit: int
    position: Position | None
    resource_version: str  # "", "0", or a number
    exact: bool  # of just that version; otherwise of that or any later one
    watch: bool
    timeout_seconds: int
    bookmarks: bool
    initial_events: bool | None  # None: not said

    @property
    def revision(self) -> int:
        return int(self.resource_version or 0)


def list_query(parameters: Parameters) -> ListQuery:
    """Raises ApiError 400."""
    version = text(parameters, "resourceVersion")
    if version:
        version = str(number(parameters, "resourceVersion"))
    match = _one_of(parameters, "resourceVersionMatch", ("Exact", "NotOlderThan"))
    limit = number(parameters, "limit")
    position = _position(text(parameters, "continue"))
    watch = flag(parameters, "watch")
    if match and not version and not watch:
        raise bad_request("query parameter resourceVersionMatch: needs a resourceVersion")
    if position and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    if match == "Exact" and version == "0":
        raise bad_request('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    said = "sendInitialEvents" in parameters
    return ListQuery(
        label_selector=text(parameters, "labelSelector"),
        field_selector=text(parameters, "fieldSelector"),
        limit=limit,
        position=position,
        resource_version=version,
        exact=match == "Exact" or (not match and bool(limit) and version not in ("", "0")),
        watch=watch,
        timeout_seconds=number(parameters, "timeoutSeconds"),
        bookmarks=flag(parameters, "allowWatchBookmarks"),
        initial_events=flag(parameters, "sendInitialEvents") if said else None,
    )


@dataclass(frozen=True, slots=True)
class WriteQuery:
    dry_run: bool
    field_validation: str  # "Strict", "Warn", "Ignore"


def write_query(parameters: Parameters) -> WriteQuery:
    """Raises ApiError 400."""
    dry_run = _one_of(parameters, "dryRun", ("All",))
    return WriteQuery(dry_run == "All", _one_of(parameters, "fieldValidation", _VALIDATION, "Warn"))


@dataclass(frozen=True, slots=True)
class DeleteQuery:
    dry_run: bool
    grace_seconds: int | None  # None: the object's own
    policy: str  # "", "Background", "Foreground", "Orphan"
    uid: str  # "": any
    resource_version: str  # "": any


def delete_query(parameters: Parameters, options: Mapping[str, object]) -> DeleteQuery:
    """From the query and, first, the DeleteOptions in the body. Raises ApiError 400."""
    grace = options.get("gracePeriodSeconds")
    if grace is None and text(parameters, "gracePeriodSeconds"):
        grace = number(parameters, "gracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        grace = 1  # what the API makes of a negative one: as soon as can be, but not without asking the node
    policy = str(options.get("propagationPolicy") or "") or text(parameters, "propagationPolicy")
    if options.get("orphanDependents") or flag(parameters, "orphanDependents"):
        policy = policy or "Orphan"
    if policy and policy not in _PROPAGATION:
        raise bad_request(f"propagationPolicy: {policy!r} is none of {', '.join(_PROPAGATION)}")
    said = options.get("dryRun") or parameters.get("dryRun") or []
    if said not in ([], ["All"]):
        raise bad_request("dryRun: only All is known")
    wanted = options.get("preconditions")
    preconditions = wanted if isinstance(wanted, dict) else {}
    return DeleteQuery(
        dry_run=bool(said),
        grace_seconds=grace if isinstance(grace, int) else None,
        policy=policy,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
    )
