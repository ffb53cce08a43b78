"""A small API server in memory that keeps the contract clients rely on: lists in pages at one revision, watches from
a revision with bookmarks, 410 for what it has forgotten, optimistic concurrency, deletion by precondition. It checks
no fields. What a network does to clients is on its switchboard: `hang_up`, `forget`, `refuse`.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from clusterip.model.resources import RESOURCES, Resource
from clusterip.model.status import ApiError, Object

PATHS = {(r.path, r.plural): r for r in RESOURCES}


class FakeApiServer:
    """`async with FakeApiServer() as server`; its address is `server.url`."""

    def __init__(self) -> None:
        self.revision = 10
        self.objects: dict[tuple[Resource, str, str], Object] = {}
        self.requests: list[tuple[str, str]] = []  # (method, path) of all that arrived
        self.refuse = 0  # answer so many requests with 503
        self.created: Callable[[Resource], None] = lambda resource: None  # called for every creation by a client
        self.lag: dict[Resource, float] = {}  # seconds by which watches of a kind are late
        self.page = 0  # at most so many items a page, whatever the client asks; 0: as it asks
        self._history: list[tuple[int, str, Resource, Object]] = []
        self._oldest = 10  # watches from before this get 410
        self._snapshots: dict[str, tuple[int, list[Object]]] = {}
        self._tokens = itertools.count(1)
        self._news = asyncio.Condition()
        self._generation = 0  # raised by `hang_up`: watches of an older one end

    async def __aenter__(self) -> "FakeApiServer":
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()
        await self._runner.cleanup()

    # --- what a test does to it

    async def put(self, resource: Resource, obj: Object) -> Object:
        meta = obj.setdefault("metadata", {})
        key = (resource, meta.get("namespace", ""), meta["name"])
        self.revision += 1
        event = "MODIFIED" if key in self.objects else "ADDED"
        meta["resourceVersion"] = str(self.revision)
        meta.setdefault("uid", f"uid-{self.revision}")
        stored = {"apiVersion": resource.api_version, "kind": resource.kind, **copy.deepcopy(obj)}
        self.objects[key] = stored
        await self._publish(event, resource, stored)
        return stored

    async def remove(self, resource: Resource, namespace: str, name: str) -> None:
        gone = self.objects.pop((resource, namespace, name))
        self.revision += 1
        gone = copy.deepcopy(gone)
        gone["metadata"]["resourceVersion"] = str(self.revision)
        await self._publish("DELETED", resource, gone)

    async def hang_up(self) -> None:
        """All watches end."""
        self._generation += 1
        async with self._news:
            self._news.notify_all()

    async def forget(self) -> None:
        """What happened until now cannot be watched from, and no list be continued, any more."""
        self._oldest = self.revision
        self._history.clear()
        self._snapshots.clear()
        await self.hang_up()

    async def _publish(self, event: str, resource: Resource, obj: Object) -> None:
        self._history.append((self.revision, event, resource, obj))
        async with self._news:
            self._news.notify_all()

    # --- what a client sees of it

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        try:
            if self.refuse:
                self.refuse -= 1
                raise ApiError(503, "ServiceUnavailable", "the server is being tried")
            resource, namespace, name, subresource = _address(request.path)
            if request.method == "GET" and request.query.get("watch"):
                return await self._watch(request, resource, namespace)
            body = await request.json() if request.can_read_body else {}
            return web.json_response(await self._answer(request, (resource, namespace, name), subresource, body))
        except ApiError as error:
            return web.json_response(error.status(), status=error.code)

    async def _answer(
        self, request: web.Request, key: tuple[Resource, str, str], subresource: str, body: Any
    ) -> Object:
        resource, namespace, name = key
        if request.method == "POST" and not name:
            return await self._create(key, body)
        if request.method == "GET" and not name:
            return self._list(request, resource, namespace)
        current = self.objects.get(key)
        if current is None:
            details = {"name": name, "kind": resource.plural}
            raise ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=details)
        match request.method:
            case "GET":
                return current
            case "POST" if subresource == "binding":
                bound = copy.deepcopy(current)
                bound["spec"]["nodeName"] = body["target"]["name"]
                return await self.put(resource, bound)
            case "PUT":
                return await self._replace(key, current, subresource, body)
            case "PATCH":
                return await self._replace(key, current, subresource, merged(current, body))
            case "DELETE":
                await self._delete(key, current, body)
                return {"kind": "Status", "status": "Success"}
        raise ApiError(405, "MethodNotAllowed", request.method)

    async def _create(self, key: tuple[Resource, str, str], body: Object) -> Object:
        resource, namespace, _ = key
        meta = body.setdefault("metadata", {})
        if namespace:
            meta["namespace"] = namespace
        if not meta.get("name"):
            meta["name"] = f"{meta['generateName']}{next(self._tokens):05d}"
        if (resource, namespace, meta["name"]) in self.objects:
            raise ApiError(409, "AlreadyExists", f'{resource.qualified} "{meta["name"]}" already exists')
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta.setdefault("generation", 1)
        self.created(resource)
        return await self.put(resource, body)

    async def _replace(self, key: tuple[Resource, str, str], current: Object, subresource: str, body: Object) -> Object:
        given = body["metadata"].get("resourceVersion")
        if given and given != current["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", f'{key[0].qualified} "{key[2]}": the object has been modified')
        if subresource == "status":
            body = {**current, "status": body.get("status", {})}
        elif body.get("spec") != current.get("spec"):
            body["metadata"]["generation"] = current["metadata"].get("generation", 1) + 1
        body["metadata"].setdefault("uid", current["metadata"]["uid"])
        body["metadata"].setdefault("creationTimestamp", current["metadata"].get("creationTimestamp"))
        if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            await self.remove(*key)
            return body
        return await self.put(key[0], copy.deepcopy(body))

    async def _delete(self, key: tuple[Resource, str, str], current: Object, options: Object) -> None:
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != current["metadata"]["uid"]:
            raise ApiError(409, "Conflict", f'{key[0].qualified} "{key[2]}": the UID is not {uid}')
        if current["metadata"].get("finalizers"):
            going = copy.deepcopy(current)
            going["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            await self.put(key[0], going)
        else:
            await self.remove(*key)

    def _list(self, request: web.Request, resource: Resource, namespace: str) -> Object:
        token = request.query.get("continue", "")
        if token:
            if token not in self._snapshots:
                raise ApiError(410, "Expired", "the continue token is too old")
            revision, items = self._snapshots.pop(token)
        else:
            revision = self.revision
            items = [o for (r, n, _), o in sorted(self.objects.items(), key=lambda e: e[0][1:]) if r == resource]
            items = [copy.deepcopy(o) for o in items if not namespace or o["metadata"].get("namespace") == namespace]
        limit = int(request.query.get("limit", 0))
        limit = min(limit, self.page) if limit and self.page else limit
        rest = items[limit:] if limit else []
        meta = {"resourceVersion": str(revision)}
        if rest:
            meta["continue"] = f"token-{next(self._tokens)}"
            self._snapshots[meta["continue"]] = (revision, rest)
        kind = f"{resource.kind}List"
        return {"kind": kind, "metadata": meta, "items": items[:limit] if limit else items}

    async def _watch(self, request: web.Request, resource: Resource, namespace: str) -> web.StreamResponse:
        after = int(request.query["resourceVersion"])
        if after < self._oldest:
            raise ApiError(410, "Expired", f"too old resource version: {after} ({self._oldest})")
        generation = self._generation
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while generation == self._generation:
            if resource in self.lag:
                await asyncio.sleep(self.lag[resource])
            news = [entry for entry in self._history if entry[0] > after]
            for revision, event, of, obj in news:
                after = revision
                if of == resource and (not namespace or obj["metadata"].get("namespace") == namespace):
                    await response.write(json.dumps({"type": event, "object": obj}).encode() + b"\n")
            if news:
                mark = {"kind": resource.kind, "metadata": {"resourceVersion": str(after)}}
                await response.write(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
            async with self._news:
                if generation == self._generation and self.revision == after:
                    await self._news.wait()
        return response


def _address(path: str) -> tuple[Resource, str, str, str]:
    parts = path.strip("/").split("/")
    head, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource = PATHS.get(("/" + "/".join(head), rest[0] if rest else ""))
    if resource is None:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    return resource, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
