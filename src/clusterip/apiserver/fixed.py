"""The paths that are no resource: health, version, discovery, schemas, metrics, and the reviews that are answered and
not kept.
"""

from dataclasses import dataclass
from functools import cache

import msgspec

from clusterip.apiserver import discovery, refusals
from clusterip.apiserver.metrics import CONTENT_TYPE, Metrics
from clusterip.apiserver.output import Answer, document
from clusterip.apiserver.verbs import Request
from clusterip.model import codec, openapi
from clusterip.model.resources import Resource
from clusterip.model.status import Object

SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)
SUBJECT_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)
_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@dataclass(frozen=True, slots=True)
class Fixed:
    metrics: Metrics
    address: str  # "192.168.50.1:6443", where clients reach this server

    async def answer(self, request: Request) -> Answer:
        """Raises ApiError."""
        path = request.path.rstrip("/") or "/"
        match request.method, path.strip("/").split("/"):
            case "GET" | "HEAD", ["healthz" | "livez" | "readyz", *_]:
                return Answer(b"ok", media_type="text/plain; charset=utf-8")
            case "GET", ["version"]:
                return document(discovery.version())
            case "GET", [""]:
                return document({"paths": _paths()})
            case "GET", ["metrics"]:
                return Answer(self.metrics.text(), media_type=CONTENT_TYPE)
            case "GET", ["api" | "apis", *rest]:
                return self._discovery(request, path, rest)
            case "GET", ["openapi", *rest]:
                return _openapi(rest)
            case "POST", ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]:
                return _access_review(request)
            case "POST", ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"]:
                return _subject_review(request)
            case _:
                raise refusals.no_such_path()

    def _discovery(self, request: Request, path: str, rest: list[str]) -> Answer:
        form = discovery.aggregated_form(request.accept)
        if not rest and form:
            media = f"application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList"
            return Answer(_encode(discovery.aggregated(form, core=path == "/api")), media_type=media)
        found: Object | None
        match path.strip("/").split("/"):
            case ["api"]:
                found = discovery.api_versions(self.address)
            case ["apis"]:
                found = discovery.groups()
            case ["api", version]:
                found = discovery.resources_of("", version)
            case ["apis", group]:
                found = discovery.group_of(group)
            case ["apis", group, version]:
                found = discovery.resources_of(group, version)
            case _:
                found = None
        if found is None:
            raise refusals.no_such_path()
        return document(found)


def _encode(obj: Object) -> bytes:
    return msgspec.json.encode(obj)


def _paths() -> list[str]:
    served = [
        f"/apis/{group}/{version}" if group else f"/api/{version}" for group, version in discovery.group_versions()
    ]
    return ["/api", "/apis", *served, "/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version"]


def _openapi(rest: list[str]) -> Answer:
    match rest:
        case ["v2"]:
            # Old clients only ask whether there is one; an empty document of the right type is enough for them.
            return Answer(b"", media_type=_OPENAPI_V2)
        case ["v3"]:
            return document(openapi.index())
        case ["v3", "api", version]:
            return Answer(_schemas("", version))
        case ["v3", "apis", group, version]:
            return Answer(_schemas(group, version))
        case _:
            raise refusals.no_such_path()


@cache
def _schemas(group: str, version: str) -> bytes:
    try:
        return _encode(openapi.document(group, version))
    except KeyError:
        raise refusals.no_such_path() from None


def _access_review(request: Request) -> Answer:
    """Who has a token may do everything."""
    review = codec.decode(request.content_type, request.body, SUBJECT_ACCESS_REVIEWS).obj
    return document(
        {**review, "status": {"allowed": True, "reason": "every token of this server may do everything"}}, 201
    )


def _subject_review(request: Request) -> Answer:
    review = codec.decode(request.content_type, request.body, SUBJECT_REVIEWS).obj
    identity = request.identity
    who = {"username": identity.user, "groups": [*identity.groups, "system:authenticated"]}
    return document({**review, "status": {"userInfo": who}}, 201)
