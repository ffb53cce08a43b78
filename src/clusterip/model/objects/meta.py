"""What all kinds have in common."""

from typing import TypeAlias

import msgspec

Labels: TypeAlias = dict[str, str]  # never mutated once decoded


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of all: immutable, compared by content, encodes without fields that hold their default."""


class OwnerReference(Value, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Value, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None  # RFC 3339, UTC
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ObjectReference(Value, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class Condition(Value, frozen=True):
    type: str
    status: str = "Unknown"  # "True", "False", "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_update_time: str | None = None  # Deployments
    last_heartbeat_time: str | None = None  # Nodes
