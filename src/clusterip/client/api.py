"""Requests to any Kubernetes API server: get, list in pages, watch, and writes.

What it answers is decoded straight into typed values. An answer that is an error is an `ApiError` with the server's
own code, reason and causes; no answer is `Unavailable`.
"""

import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from clusterip.client.kubeconfig import Connection
from clusterip.client.tls import context
from clusterip.client.wire import (
    EventKind,
    Listing,
    WatchEvent,
    api_error,
    decode,
    decoder_of,
    document,
    encode,
    event,
    page_decoder,
)
from clusterip.errors import Unavailable
from clusterip.model.objects import Value
from clusterip.model.resources import Resource
from clusterip.model.status import ApiError, Object

__all__ = ["Api", "EventKind", "Listing", "PatchKind", "WatchEvent", "url_path"]

T = TypeVar("T", bound=Value)
Patch: TypeAlias = Object | list[Object]  # a list is a JSON patch

PAGE = 500  # objects a page of a list
ANSWER_WITHIN = 60.0  # seconds a plain request may take
WATCH_SECONDS = 290  # a watch is ended by the server after this and begun anew
WATCH_GRACE = 20.0  # seconds beyond that until silence means that the server is dead


class PatchKind(Enum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Api:
    """Use as `async with Api(connection) as api`."""

    def __init__(self, connection: Connection, *, user_agent: str = "clusterip") -> None:
        self.connection = connection
        self._user_agent = user_agent
        self._token = connection.token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Api":
        tls: ssl.SSLContext | bool = context(self.connection) if self.connection.server.startswith("https:") else False
        self._session = aiohttp.ClientSession(
            # No limit: every watch keeps a connection, and a write must not wait for one.
            connector=aiohttp.TCPConnector(ssl=tls, limit=0, socket_factory=_noticing_socket),
            headers={"User-Agent": self._user_agent, "Accept": "application/json"},
            auto_decompress=True,
            trust_env=False,
        )
        self._read_token()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()
        self._session = None

    async def get(self, resource: Resource, namespace: str, name: str, as_type: type[T]) -> T:
        """Raises ApiError; its code is 404 when there is none."""
        body = await self._request("GET", url_path(resource, namespace, name))
        found: T = decode(decoder_of(as_type), body, resource)
        return found

    async def list(
        self,
        resource: Resource,
        as_type: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """All of them ("" for `namespace`: of all namespaces) at one revision, fetched in pages."""
        selectors = _selectors(label_selector, field_selector)
        path = url_path(resource, namespace)
        items: list[T] = []
        query: dict[str, str] = {"limit": str(PAGE)}
        while True:
            try:
                body = await self._request("GET", path, query={**selectors, **query})
            except ApiError as error:
                if error.code != 410 or "continue" not in query:
                    raise
                # The revision of the first page is gone while we read. One answer without pages cannot go stale.
                items, query = [], {}
                continue
            page = decode(page_decoder(as_type), body, resource)
            items.extend(page.items or ())
            if not page.metadata.proceed:
                return Listing(tuple(items), page.metadata.resource_version)
            query = {"limit": str(PAGE), "continue": page.metadata.proceed}

    async def watch(
        self,
        resource: Resource,
        as_type: type[T],
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """What happened after `resource_version`, until the server ends it (minutes). Raises ApiError, with code
        410 when that revision is gone: list again."""
        query = {
            **_selectors(label_selector, field_selector),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        decoder = decoder_of(as_type)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=WATCH_SECONDS + WATCH_GRACE)
        try:
            async with self._open("GET", url_path(resource, namespace), query, timeout) as response:
                if response.status >= 300:
                    raise self._refusal(response.status, await response.read())
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                    for line in lines:
                        if line:
                            yield event(line, decoder, resource)
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from None

    async def create(
        self, resource: Resource, namespace: str, obj: Value | Object, *, name: str = "", subresource: str = ""
    ) -> Object:
        """`name` and `subresource` together post to one: pods/NAME/binding."""
        path = url_path(resource, namespace, name, subresource)
        return document(await self._request("POST", path, body=encode(resource, obj)), resource)

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Value | Object, subresource: str = ""
    ) -> Object:
        """Replaces the whole object: give a `Value` only where its type knows every field that is used."""
        path = url_path(resource, namespace, name, subresource)
        return document(await self._request("PUT", path, body=encode(resource, obj)), resource)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Patch,
        *,
        subresource: str = "",
        kind: PatchKind = PatchKind.MERGE,
    ) -> Object:
        path = url_path(resource, namespace, name, subresource)
        query = {"fieldManager": self._user_agent, "force": "true"} if kind is PatchKind.APPLY else {}
        body = msgspec.json.encode(patch)
        return document(await self._request("PATCH", path, query=query, body=body, content_type=kind.value), resource)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
    ) -> None:
        """With `uid`: only if it is still that one, otherwise ApiError 409. `propagation`: Background, Foreground,
        Orphan; what becomes of its dependents."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._request("DELETE", url_path(resource, namespace, name), body=msgspec.json.encode(options))

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN, sock_connect=10.0)
        try:
            async with self._open(method, path, query or {}, timeout, body, content_type) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreachable(error) from None
        if response.status >= 300:
            raise self._refusal(response.status, answer)
        return answer

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> "aiohttp.client._RequestContextManager":
        assert self._session is not None, "Api is used outside of `async with`"
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        if body is not None:
            headers["Content-Type"] = content_type
        return self._session.request(
            method,
            self.connection.server + path,
            params=query,
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self.connection.tls_server_name or None,
        )

    def _refusal(self, code: int, body: bytes) -> ApiError:
        if code == 401:
            self._read_token()
        return api_error(code, body)

    def _read_token(self) -> None:
        if self.connection.token_file:
            try:
                self._token = Path(self.connection.token_file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise Unavailable(f"token file {self.connection.token_file}: cannot be read, {error}") from None

    def _unreachable(self, error: Exception) -> Unavailable:
        why = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return Unavailable(f"API server {self.connection.server}: cannot be reached, {why}")


def url_path(resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    parts = [resource.path]
    if resource.namespaced and namespace:
        parts.append(f"namespaces/{quote(namespace, safe='')}")
    parts.append(resource.plural)
    parts.extend(quote(part, safe="") for part in (name, subresource) if part)
    return "/".join(parts)


def _noticing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A peer that died without a word is noticed after 30 s, not after the two hours of the kernel's default."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for option, seconds in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        made.setsockopt(socket.IPPROTO_TCP, option, seconds)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    return made


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {key: text for key, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}
