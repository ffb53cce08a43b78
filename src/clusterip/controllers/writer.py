"""Does writes, and says what the view must show before it can be trusted to hold them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from clusterip.client.api import Api
from clusterip.client.mirror import Mirror
from clusterip.client.view import metadata
from clusterip.controllers.writes import Bind, Create, Delete, Owner, Patch, Update, Write
from clusterip.model.objects import Value
from clusterip.model.resources import PODS, Resource
from clusterip.model.status import ApiError, Object


@dataclass(frozen=True, slots=True)
class AtRevision:
    """All of the kind has been told up to the revision."""

    as_type: type[Value]
    revision: int


@dataclass(frozen=True, slots=True)
class Past:
    """The object is no longer as it was at that revision: changed or gone."""

    as_type: type[Value]
    namespace: str
    name: str
    revision: str


@dataclass(frozen=True, slots=True)
class Going:
    """The object with that uid is gone, or on its way."""

    as_type: type[Value]
    namespace: str
    name: str
    uid: str


Own: TypeAlias = AtRevision | Past | Going  # a write of ours that the view is still to show


def shows(mirror: Mirror, own: Own) -> bool:
    match own:
        case AtRevision():
            return mirror.told(own.as_type) >= own.revision
        case Past():
            found = mirror.view.get(own.as_type, own.namespace, own.name)
            return found is None or metadata(found).resource_version != own.revision
        case Going():
            found = mirror.view.get(own.as_type, own.namespace, own.name)
            return found is None or metadata(found).uid != own.uid or metadata(found).deletion_timestamp is not None
        case _:
            assert_never(own)


class Writer:
    def __init__(self, api: Api, types: Mapping[Resource, type[Value]]) -> None:
        self._api = api
        self._types = types  # of the kinds the Mirror follows

    async def do(self, write: Write) -> tuple[Own, ...]:
        """Raises ApiError and Unavailable; not for a write whose object is gone: then there is nothing to do."""
        try:
            return await self._send(write)
        except ApiError as error:
            if _is_settled(write, error):
                return ()
            raise

    async def _send(self, write: Write) -> tuple[Own, ...]:
        match write:
            case Create():
                return self._own(write.resource, await self._api.create(write.resource, write.namespace, write.object))
            case Update():
                target = (write.resource, write.namespace, write.name)
                return self._own(write.resource, await self._api.update(*target, write.object, write.subresource))
            case Patch():
                target = (write.resource, write.namespace, write.name)
                made = await self._api.patch(*target, write.patch, subresource=write.subresource)
                return self._own(write.resource, made)
            case Bind():
                await self._bind(write)
                as_type = self._types.get(PODS)
                return (Past(as_type, write.namespace, write.name, write.revision),) if as_type else ()
            case Delete():
                return await self._delete(write)
            case _:
                assert_never(write)

    async def _bind(self, write: Bind) -> None:
        binding: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": write.name, "namespace": write.namespace, "uid": write.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": write.node},
        }
        await self._api.create(PODS, write.namespace, binding, name=write.name, subresource="binding")

    async def _delete(self, write: Delete) -> tuple[Own, ...]:
        for owner in write.unless:
            if await self._exists(owner):
                return ()
        await self._api.delete(
            write.resource,
            write.namespace,
            write.name,
            grace_seconds=write.grace_seconds,
            uid=write.uid,
            propagation=write.propagation,
        )
        as_type = self._types.get(write.resource)
        return (Going(as_type, write.namespace, write.name, write.uid),) if as_type else ()

    async def _exists(self, owner: Owner) -> bool:
        try:
            found = await self._api.get(owner.resource, owner.namespace, owner.name, owner.as_type)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return not owner.uid or metadata(found).uid == owner.uid

    def _own(self, resource: Resource, made: Object) -> tuple[Own, ...]:
        version = str((made.get("metadata") or {}).get("resourceVersion") or "")
        as_type = self._types.get(resource)
        return (AtRevision(as_type, int(version)),) if as_type and version.isdigit() else ()


def _is_settled(write: Write, error: ApiError) -> bool:
    match write:
        case Create():
            ending = any(cause.reason == "NamespaceTerminating" for cause in error.causes)
            return error.code == 404 or (error.code == 403 and ending)
        case Delete():
            return error.code == 404 or error.code == 409  # 409: another object has the name now
        case Update() | Patch() | Bind():
            return error.code == 404
        case _:
            assert_never(write)
