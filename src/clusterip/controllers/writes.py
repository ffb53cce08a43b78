"""What controllers want written, as values: `plan` says them, the loop does them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from clusterip.model.objects import ObjectReference, Value
from clusterip.model.resources import EVENTS, Resource
from clusterip.model.status import Object


class Key(NamedTuple):
    """Of the object that a controller is to put in order."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Owner:
    """An object that another one points to."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    as_type: type[Value]


@dataclass(frozen=True, slots=True)
class Create:
    resource: Resource
    namespace: str
    object: Object


@dataclass(frozen=True, slots=True)
class Update:
    """`object` carries the resourceVersion that it was made from: a newer one wins."""

    resource: Resource
    namespace: str
    name: str
    object: Object
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch; with `metadata.resourceVersion` or `metadata.uid` in it, only of that very object."""

    resource: Resource
    namespace: str
    name: str
    patch: Object
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    resource: Resource
    namespace: str
    name: str
    uid: str
    grace_seconds: int | None = None
    propagation: str = ""
    unless: tuple[Owner, ...] = ()  # not if the server, asked just before, still has one of these


@dataclass(frozen=True, slots=True)
class Bind:
    """Puts a pod on a node."""

    namespace: str
    name: str
    uid: str
    node: str
    revision: str  # of the pod, when this was planned


Write: TypeAlias = Create | Update | Patch | Delete | Bind


@dataclass(frozen=True, slots=True)
class Plan:
    writes: tuple[Write, ...] = ()  # done in this order; the first that fails ends it
    again_after: float | None = None  # seconds until the key is to be planned again, whatever happens
    figures: Mapping[str, float] = field(default_factory=dict)  # for metrics, by the controller's own names
    notes: Mapping[str, str] = field(default_factory=dict)  # for metrics: what kind of key it is


NOTHING = Plan()


def event(about: ObjectReference, reason: str, message: str, *, warning: bool = False, now: str) -> Create:
    """An Event that `kubectl describe` shows. `now`: RFC 3339."""
    namespace = about.namespace or "default"
    return Create(
        EVENTS,
        namespace,
        {
            "metadata": {"generateName": f"{about.name}."[:58], "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": {"component": "clusterip-controllers"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        },
    )
