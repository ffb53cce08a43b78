"""Events of pods, as `kubectl describe pod` shows them. What happens again is counted, not told again."""

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Never, TypeAlias

from clusterip.client.api import Api
from clusterip.errors import ClusterIPError
from clusterip.model.objects import Pod
from clusterip.model.resources import EVENTS
from clusterip.model.status import Object
from clusterip.node.status import rfc3339

log = logging.getLogger(__name__)

REMEMBERED = 1000  # different events that are counted up when they come again
WAITING = 1000  # events that may wait to be written; more are dropped, they are not worth the memory

Key: TypeAlias = tuple[str, str, str, str]  # uid, part of the pod, reason, message


@dataclass(slots=True)  # not frozen: it is counted up in place
class Told:
    name: str
    count: int


class Recorder:
    """`say` never waits; `run`, in a task of its own, writes."""

    def __init__(self, api: Api, node_name: str) -> None:
        self._api = api
        self._source = {"component": "kubelet", "host": node_name}
        self._queue: asyncio.Queue[tuple[Pod, Key, str]] = asyncio.Queue(WAITING)
        self._told: OrderedDict[Key, Told] = OrderedDict()

    def say(self, pod: Pod, reason: str, message: str, *, part: str = "", warning: bool = False) -> None:
        key = (pod.metadata.uid, part, reason, message)
        try:
            self._queue.put_nowait((pod, key, "Warning" if warning else "Normal"))
        except asyncio.QueueFull:
            log.warning("node.event.dropped reason=%s pod=%s/%s", reason, pod.metadata.namespace, pod.metadata.name)

    async def run(self) -> Never:
        while True:
            pod, key, kind = await self._queue.get()
            try:
                await self._write(pod, key, kind)
            except ClusterIPError as error:
                log.info("node.event.lost reason=%s error=%r", key[2], error.message)

    async def _write(self, pod: Pod, key: Key, kind: str) -> None:
        now, namespace = rfc3339(time.time()), pod.metadata.namespace
        told = self._told.get(key)
        if told is not None:
            self._told.move_to_end(key)
            told.count += 1
            await self._api.patch(EVENTS, namespace, told.name, {"count": told.count, "lastTimestamp": now})
            return
        name = f"{pod.metadata.name}.{uuid.uuid4().hex[:16]}"
        await self._api.create(EVENTS, namespace, {**self._event(pod, key, kind, now), "metadata": {"name": name}})
        self._told[key] = Told(name, 1)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    def _event(self, pod: Pod, key: Key, kind: str, now: str) -> Object:
        _, part, reason, message = key
        involved = {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
            **({"fieldPath": part} if part else {}),
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": self._source,
            "reportingComponent": "kubelet",
            "reportingInstance": self._source["host"],
        }
