"""Writes a pod's status to the API, at once when it changes, and nothing when it does not."""

import asyncio
import logging
import time
from dataclasses import replace

import msgspec

from clusterip.client.api import Api, PatchKind
from clusterip.client.mirror import Backoff
from clusterip.errors import ClusterIPError
from clusterip.model.objects import Condition, ContainerStatus, Pod
from clusterip.model.resources import PODS
from clusterip.model.status import ApiError, Object
from clusterip.node import status
from clusterip.node.status import Facts

log = logging.getLogger(__name__)


class Publisher:
    """Owns what is known of a pod. `run`, in a task of its own, writes; the other methods only note."""

    def __init__(self, api: Api, pod: Pod, facts: Facts) -> None:
        self.pod = pod  # as the API has it
        self.facts = facts
        self._api = api
        self._dirty = asyncio.Event()
        self._idle = asyncio.Event()  # all that is known is written
        self._written: Object | None = None
        self._revision = 0  # of our last write
        self._conditions: tuple[Condition, ...] = ()  # ours, as last computed
        self._gone = False  # the API has no such pod any more
        self._dirty.set()

    def changed(self, **facts: object) -> None:
        self.facts = replace(self.facts, **facts)  # type: ignore[arg-type]  # fields of Facts, checked when it is made
        self._note()

    def container(self, changed: ContainerStatus) -> None:
        self.changed(containers={**self.facts.containers, changed.name: changed})

    def heard(self, pod: Pod) -> None:
        """The API has another version of it. If somebody wrote over what is ours, it is written again."""
        self.pod = pod
        revision = pod.metadata.resource_version
        if revision.isdecimal() and int(revision) > self._revision and self._differs(pod):
            self._written = None
        self._note()

    def _differs(self, pod: Pod) -> bool:
        theirs = {c.type: c.status for c in pod.status.conditions}
        return self._written is not None and any(theirs.get(c.type) != c.status for c in self._conditions)

    def _note(self) -> None:
        if not self._gone:
            self._idle.clear()
            self._dirty.set()

    async def flushed(self) -> None:
        """Waits until all that is known is written, or the pod is no more."""
        await self._idle.wait()

    async def run(self) -> None:
        """Until the pod is no more."""
        backoff = Backoff()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            document = self._document()
            if document == self._written:
                self._idle.set()
                continue
            try:
                await self._write(document)
                backoff.reset()
            except ApiError as error:
                if error.code in (404, 409):  # gone, or another pod of that name
                    self._gone = True
                    self._idle.set()
                    return
                log.warning("node.status.refused pod=%s error=%r", self.pod.metadata.name, error.message)
                await asyncio.sleep(backoff.delay())
            except ClusterIPError as error:
                log.warning("node.status.delayed pod=%s error=%r", self.pod.metadata.name, error.message)
                await asyncio.sleep(backoff.delay())
            self._dirty.set()

    def _document(self) -> Object:
        theirs = tuple(c for c in self.pod.status.conditions if c.type not in status.OURS)
        ours = self._conditions or tuple(c for c in self.pod.status.conditions if c.type in status.OURS)
        pod = msgspec.structs.replace(
            self.pod, status=msgspec.structs.replace(self.pod.status, conditions=(*theirs, *ours))
        )
        self._conditions = status.conditions(self.facts, pod, status.rfc3339(time.time()))
        return status.document(self.facts, pod, self._conditions)

    async def _write(self, document: Object) -> None:
        meta = self.pod.metadata
        # With the uid, it cannot become the status of a new pod of the same name.
        patch = {"metadata": {"uid": meta.uid}, "status": document}
        answer = await self._api.patch(
            PODS, meta.namespace, meta.name, patch, subresource="status", kind=PatchKind.STRATEGIC
        )
        self._written = document
        revision = str(answer["metadata"].get("resourceVersion", ""))
        self._revision = int(revision) if revision.isdecimal() else 0
