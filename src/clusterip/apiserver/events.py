"""Events that the API server itself has to tell of an object; and that all events are forgotten after an hour."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Never

import msgspec

from clusterip.apiserver import documents
from clusterip.apiserver.registry import Registry
from clusterip.apiserver.requests import DeleteQuery, Target
from clusterip.errors import ClusterIPError
from clusterip.model.resources import EVENTS
from clusterip.model.status import ApiError, Object

log = logging.getLogger("clusterip.apiserver")

KEPT = timedelta(hours=1)  # behind the last time that an event was seen; kube-apiserver's --event-ttl
EVERY = 60.0  # seconds between two rounds
_PAGE = 200  # events looked at without giving others a turn
_AT_ONCE = DeleteQuery(dry_run=False, grace_seconds=None, policy="", uid="", resource_version="")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    creation_timestamp: datetime


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: datetime | None = None


class _Seen(msgspec.Struct, rename="camel"):
    """As much of an event as says when it was last seen."""

    metadata: _Metadata
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: _Series | None = None

    @property
    def last(self) -> datetime:
        told = (self.event_time, self.last_timestamp, self.series.last_observed_time if self.series else None)
        return max(filter(None, (*told, self.metadata.creation_timestamp)))


_decoder = msgspec.json.Decoder(_Seen)


async def keep_forgetting(registry: Registry) -> Never:
    while True:
        await asyncio.sleep(EVERY)
        try:
            await forget(registry)
        except ClusterIPError as error:
            log.warning("apiserver.events.kept error=%s", error.message)


async def forget(registry: Registry) -> None:
    """One round: deletes the events that are older than KEPT."""
    prefix, after = Target(EVENTS).prefix, ""
    while True:
        page = await registry.store.list(prefix, after=after, limit=_PAGE)
        oldest = registry.now() - KEPT
        for seen in map(_decoder.decode, map(documents.body, page.items)):
            if seen.last < oldest:
                await _delete(registry, Target(EVENTS, seen.metadata.namespace, seen.metadata.name))
        if not page.remaining:
            return
        after = page.items[-1].key
        await asyncio.sleep(0)


async def _delete(registry: Registry, target: Target) -> None:
    try:
        await registry.delete(target, _AT_ONCE)
    except ApiError as error:
        if error.code != 404:
            raise


async def warn(registry: Registry, about: Object, reason: str, message: str) -> None:
    """A Warning event on an object, counted up if it was said before."""
    metadata = about["metadata"]
    namespace = metadata.get("namespace") or "default"
    now = registry.stamp().time()
    name = f"{metadata['name'].replace(':', '-')}.{reason.lower()}"
    target = Target(EVENTS, namespace, name)

    def again(old: Object) -> Object:
        return {**old, "message": message, "count": old.get("count", 1) + 1, "lastTimestamp": now}

    if await registry.store.get(target.key):
        await registry.update(target, again)
        return
    involved = {
        "kind": about["kind"],
        "apiVersion": about["apiVersion"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
    }
    event = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "apiserver"},
    }
    await registry.create(Target(EVENTS, namespace), event)
