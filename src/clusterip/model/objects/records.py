"""Leases, ConfigMaps, Events."""

from clusterip.model.objects.meta import Labels, ObjectMeta, ObjectReference, Value


class LeaseSpec(Value, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: Labels = {}


class Event(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    count: int = 1
