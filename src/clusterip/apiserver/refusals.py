"""The API's refusals, each with the code, the reason and the words that clients look for.

Source: Kubernetes API conventions, "Response Status Kind", and what a 1.36 server answers.
"""

from collections.abc import Sequence

from clusterip.model.resources import Resource
from clusterip.model.status import ApiError, Cause, Object


def _details(resource: Resource, name: str, kind: str) -> Object:
    group = {"group": resource.group} if resource.group else {}
    return {**({"name": name} if name else {}), **group, "kind": kind}


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, details=_details(resource, name, resource.plural))


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_details(resource, name, resource.plural))


def conflict(resource: Resource, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(resource, name, resource.plural))


def modified(resource: Resource, name: str) -> ApiError:
    """Somebody else was faster: the caller must read again."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    lines = [f"{cause.field}: {cause.message}" for cause in causes]
    what = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    message = f'{resource.kind}{"." + resource.group if resource.group else ""} "{name}" is invalid: {what}'
    return ApiError(422, "Invalid", message, details=_details(resource, name, resource.kind), causes=tuple(causes))


def forbidden(resource: Resource, name: str, why: str, causes: tuple[Cause, ...] = ()) -> ApiError:
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, details=_details(resource, name, resource.plural), causes=causes)


def bad_request(why: str) -> ApiError:
    return ApiError(400, "BadRequest", why)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized", hint="send one of the tokens of --token-auth-file")


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    return ApiError(
        406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}", details={}
    )


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(requested: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def too_new(requested: int, newest: int) -> ApiError:
    """A revision that is still to come: the client may ask again in a moment."""
    return ApiError(
        504,
        "Timeout",
        f"Too large resource version: {requested}, current: {newest}",
        details={"retryAfterSeconds": 1},
        causes=(Cause("", "ResourceVersionTooLarge", "Too large resource version"),),
    )


def unavailable(why: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", why)


def internal(why: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", details={})
