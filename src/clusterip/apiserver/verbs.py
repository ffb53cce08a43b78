"""One function a verb: from a request on a resource to its answer. HTTP's words (methods, headers, codes) meet the
registry's here; bytes do not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from clusterip.apiserver import documents, refusals, requests
from clusterip.apiserver.auth import Identity
from clusterip.apiserver.output import Answer, Renderer, document, negotiate
from clusterip.apiserver.registry import Registry, Written
from clusterip.apiserver.requests import DeleteQuery, ListQuery, Parameters, Target
from clusterip.apiserver.scale import scale_of, scaled
from clusterip.model import codec, patches
from clusterip.model.resources import BINDINGS, DELETE_OPTIONS, EVICTIONS, NAMESPACES, PODS, SCALES, SERVICES
from clusterip.model.status import Object


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    parameters: Parameters
    accept: str
    content_type: str
    body: bytes
    identity: Identity


@dataclass(frozen=True, slots=True)
class Verbs:
    registry: Registry
    now: Callable[[], float]  # seconds since the epoch

    def renderer(self, request: Request, target: Target) -> Renderer:
        include = requests.text(request.parameters, "includeObject") or "Metadata"
        return Renderer(target.resource, negotiate(request.accept), include, self.now)

    async def answer(self, request: Request, target: Target) -> Answer:
        """Everything but streams. Raises ApiError."""
        match request.method, target:
            case "GET", Target(name="", subresource=""):
                return await self._list(request, target)
            case "POST", Target(name="", subresource=""):
                return await self._create(request, target)
            case "DELETE", Target(name="", subresource=""):
                return await self._delete_collection(request, target)
            case "GET", Target(subresource="" | "status"):
                return self.renderer(request, target).one(await self.registry.get(target))
            case "PUT" | "PATCH", Target(subresource="" | "status") if target.name:
                return await self._update(request, target)
            case "DELETE", Target(subresource="") if target.name:
                return await self._delete(request, target)
            case "GET" | "PUT" | "PATCH", Target(subresource="scale"):
                return await self._scale(request, target)
            case "PUT", Target(subresource="finalize"):
                return await self._finalize(request, target)
            case "POST", Target(subresource="binding"):
                return await self._bind(request, target)
            case "POST", Target(subresource="eviction"):
                return await self._evict(request, target)
            case _:
                raise refusals.method_not_allowed()

    async def _list(self, request: Request, target: Target) -> Answer:
        query = requests.list_query(request.parameters)
        renderer = self.renderer(request, target)
        return renderer.many(await self.registry.list(target, query))

    async def _create(self, request: Request, target: Target) -> Answer:
        if target.resource.namespaced and not target.namespace:
            raise refusals.method_not_allowed()
        renderer = self.renderer(request, target)
        query = requests.write_query(request.parameters)
        decoded = codec.decode(request.content_type, request.body, target.resource, query.field_validation)
        written = await self.registry.create(target, decoded.obj, dry_run=query.dry_run)
        return renderer.one(written.item, code=201, warnings=(*decoded.warnings, *written.warnings))

    async def _update(self, request: Request, target: Target) -> Answer:
        renderer = self.renderer(request, target)
        written = await self._written(request, target)
        return renderer.one(written.item, warnings=written.warnings)

    async def _written(self, request: Request, target: Target) -> Written:
        query = requests.write_query(request.parameters)
        warnings: list[str] = []
        if request.method == "PUT":
            decoded = codec.decode(request.content_type, request.body, target.resource, query.field_validation)
            written = await self.registry.update(target, lambda _: documents.copy(decoded.obj), dry_run=query.dry_run)
            return replace(written, warnings=(*decoded.warnings, *written.warnings))

        def patched(old: Object) -> Object:
            new = patches.apply(request.content_type, request.body, old, target.resource)
            decoded = codec.conformed(new, target.resource, query.field_validation)
            warnings[:] = decoded.warnings
            return decoded.obj

        written = await self.registry.update(target, patched, dry_run=query.dry_run)
        return replace(written, warnings=(*warnings, *written.warnings))

    def _delete_query(self, request: Request) -> DeleteQuery:
        options: Object = {}
        if request.body.strip():
            options = codec.decode(request.content_type, request.body, DELETE_OPTIONS).obj
        return requests.delete_query(request.parameters, options)

    async def _delete(self, request: Request, target: Target) -> Answer:
        query = self._delete_query(request)
        renderer = self.renderer(request, target)
        deleted = await self.registry.delete(target, query)
        if not deleted.gone or target.resource in (PODS, SERVICES):
            return renderer.one(deleted.item)
        metadata = documents.decode(deleted.item)["metadata"]
        group = {"group": target.resource.group} if target.resource.group else {}
        details = {"name": target.name, **group, "kind": target.resource.plural, "uid": metadata["uid"]}
        return document(_success(details))

    async def _delete_collection(self, request: Request, target: Target) -> Answer:
        if (target.resource.namespaced and not target.namespace) or target.resource is NAMESPACES:
            raise refusals.method_not_allowed()
        renderer = self.renderer(request, target)
        query = requests.list_query(request.parameters)
        return renderer.many(await self.registry.delete_collection(target, query, self._delete_query(request)))

    async def _scale(self, request: Request, target: Target) -> Answer:
        if request.method == "GET":
            return document(scale_of(documents.decode(await self.registry.get(target))))
        query = requests.write_query(request.parameters)

        def rescaled(old: Object) -> Object:
            if request.method == "PUT":
                wanted = codec.decode(request.content_type, request.body, SCALES, query.field_validation).obj
            else:
                patched = patches.apply(request.content_type, request.body, scale_of(old), SCALES)
                wanted = codec.conformed(patched, SCALES, query.field_validation).obj
            return scaled(old, wanted)

        written = await self.registry.update(target, rescaled, dry_run=query.dry_run)
        return document(scale_of(documents.decode(written.item)))

    async def _finalize(self, request: Request, target: Target) -> Answer:
        query = requests.write_query(request.parameters)
        given = codec.decode(request.content_type, request.body, NAMESPACES, query.field_validation).obj
        finalizers = (given.get("spec") or {}).get("finalizers") or []

        def finalized(old: Object) -> Object:
            version = given["metadata"].get("resourceVersion")
            condition = {"resourceVersion": version} if version else {}
            return {**old, "metadata": {**old["metadata"], **condition}, "spec": {"finalizers": finalizers}}

        written = await self.registry.update(target, finalized, dry_run=query.dry_run)
        return self.renderer(request, target).one(written.item)

    async def _bind(self, request: Request, target: Target) -> Answer:
        binding = codec.decode(request.content_type, request.body, BINDINGS).obj
        wanted = binding.get("target") or {}
        if wanted.get("kind") not in (None, "", "Node") or not wanted.get("name"):
            raise refusals.bad_request("target: a Binding names a Node")
        await self.registry.bind(target, wanted["name"])
        return document(_success(None), 201)

    async def _evict(self, request: Request, target: Target) -> Answer:
        eviction = codec.decode(request.content_type, request.body, EVICTIONS).obj
        query = requests.delete_query(request.parameters, eviction.get("deleteOptions") or {})
        await self.registry.delete(replace(target, subresource=""), query)
        return document(_success(None), 201)


def _success(details: Object | None) -> Object:
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**status, **({"details": details} if details else {"code": 201})}


def watched(request: Request, target: Target) -> tuple[Target, ListQuery] | None:
    """The collection and the query of a watch, if the request is one. A watch of one object is a watch of its
    collection for that name."""
    if request.method != "GET" or target.subresource or not requests.flag(request.parameters, "watch"):
        return None
    query = requests.list_query(request.parameters)
    if not target.name:
        return target, query
    named = f"metadata.name={target.name}"
    selector = f"{query.field_selector},{named}" if query.field_selector else named
    return replace(target, name=""), replace(query, field_selector=selector)
