"""Patches: RFC 6902, RFC 7386 and Kubernetes' strategic merge. A patch is applied to the whole document and gives a
new one; what that must look like is the codec's and validation's business.

Strategic merge follows the schema: lists that have a merge key are merged item by item, everything else is replaced.
The directives ($patch, $retainKeys, $deleteFromPrimitiveList/f, $setElementOrder/f) are the ones kubectl writes.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch
import msgspec

from clusterip.errors import BadInput
from clusterip.model import codec, yamltext
from clusterip.model.resources import Resource
from clusterip.model.schema import Field, Scalar, Sequence, Struct, Table, Type, fields, struct_of
from clusterip.model.status import ApiError, Object

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_MOST_OPERATIONS = 10_000
_MOST_BYTES = 3 * 1024 * 1024  # of a document that copy operations may grow to

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_ITEMS = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def apply(content_type: str, patch: bytes, obj: Object, resource: Resource) -> Object:
    """`obj` is left as it was. Raises ApiError: 400 a patch that cannot be read, 415 its kind, 422 it does not fit."""
    try:
        return _applied(content_type, patch, obj, resource)
    except RecursionError as error:
        raise _bad("error decoding patch: nested too deeply") from error


def _applied(content_type: str, patch: bytes, obj: Object, resource: Resource) -> Object:
    match codec.media_type(content_type):
        case "application/json-patch+json":
            return _json_patch(_decoded(patch), obj)
        case "application/merge-patch+json":
            return _as_object(merge(obj, _decoded(patch)))
        case "application/strategic-merge-patch+json":
            return _strategic(obj, _decoded(patch), struct_of(resource))
        case "application/apply-patch+yaml" | "application/apply-patch+cbor":
            raise ApiError(
                415,
                "UnsupportedMediaType",
                "server-side apply is not served here: use `kubectl apply` without --server-side",
            )
        case other:
            raise codec.unsupported(other, (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))


def _decoded(patch: bytes) -> Any:
    try:
        return msgspec.json.decode(patch)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        if not patch.lstrip().startswith((b"{", b"[")):
            return _decoded_yaml(patch)
        raise _bad(f"error decoding patch: {error}") from error


def _decoded_yaml(patch: bytes) -> Any:
    """Clients may write any patch as YAML, as the real server lets them."""
    try:
        found = [document.value for document in yamltext.documents(patch)]
    except BadInput as error:
        raise _bad(f"error decoding patch: {error.message}") from error
    if len(found) != 1:
        raise _bad("error decoding patch: one document belongs here")
    return found[0]


def _as_object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise _unfit("it leaves no JSON object")
    return value


def _bad(why: str) -> ApiError:
    return ApiError(400, "BadRequest", why)


def _unfit(why: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: patch: {why}")


# --- RFC 6902 --------------------------------------------------------------------------------------------------


def _json_patch(operations: Any, obj: Object) -> Object:
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise _bad("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > _MOST_OPERATIONS:
        raise ApiError(413, "RequestEntityTooLarge", f"a JSON patch may have {_MOST_OPERATIONS} operations at most")
    result: Any = copy.deepcopy(obj)
    for operation in operations:
        try:
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
        except _REFUSED as error:
            words = " ".join(str(operation[name]) for name in ("op", "path") if name in operation)
            raise _unfit(f"{words or 'an operation'}: {_why(error, operation)}") from error
        if operation.get("op") == "copy" and len(msgspec.json.encode(result)) > _MOST_BYTES:
            raise ApiError(413, "RequestEntityTooLarge", "the patched object is too large")
    return _as_object(result)


# All but the first two: the library walks into scalars and odd operands without looking.
_REFUSED = (
    *(jsonpatch.JsonPatchException, jsonpatch.JsonPointerException),
    *(TypeError, KeyError, ValueError, IndexError, AttributeError, RecursionError),
)


def _why(error: Exception, operation: Object) -> str:
    """In the reader's words: the library's quote Python and whole documents."""
    match error:
        case jsonpatch.JsonPatchTestFailed():
            return "the value there is not the one that was expected"
        case jsonpatch.InvalidJsonPatch():
            return str(error)
        case _ if operation.get("op") in ("move", "copy"):
            return f"nothing can be taken from {operation.get('from')}, or it cannot be put there"
        case _:
            return "the path leads to nothing in the object, or into something that has no members"


# --- RFC 7386 --------------------------------------------------------------------------------------------------


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: `null` deletes, objects merge, anything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


# --- strategic merge -------------------------------------------------------------------------------------------


def _strategic(obj: Object, patch: Any, of: Struct) -> Object:
    if not isinstance(patch, dict):
        raise _bad("error decoding patch: a strategic merge patch is a JSON object")
    return _merge_map(copy.deepcopy(obj), patch, of)


def _merge_map(original: Object, patch: Mapping[str, Any], of: Struct | Table | None) -> Object:
    """`patch` over `original`, which is consumed. `of` None: fields the schema does not know."""
    match patch.get(_DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return _merge_map({}, {k: v for k, v in patch.items() if k != _DIRECTIVE}, of)
        case "delete":
            return {}
        case other:
            raise _bad(f"{_DIRECTIVE}: {other!r} is none of merge, replace, delete")
    if _RETAIN in patch:
        kept = _list(patch[_RETAIN], _RETAIN)
        original = {key: value for key, value in original.items() if key in kept}
    result = original
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, patch, of)
    _apply_list_directives(result, patch, of)
    return result


def _merge_field(result: Object, key: str, value: Any, patch: Mapping[str, Any], of: Struct | Table | None) -> None:
    if value is None:
        result.pop(key, None)
        return
    known = _field(of, key)
    before = result.get(key)
    if isinstance(value, dict):
        inner = known.type if known and isinstance(known.type, Struct | Table) else None
        replaced = known is not None and "replace" in known.strategies
        base = before if isinstance(before, dict) and not replaced else {}
        result[key] = _merge_map(base, value, inner)
    elif isinstance(value, list) and known and "merge" in known.strategies:
        order = patch.get(_ORDER + key)
        result[key] = _merge_list(before if isinstance(before, list) else [], value, known, order)
    else:
        result[key] = copy.deepcopy(value)


def _apply_list_directives(result: Object, patch: Mapping[str, Any], of: Struct | Table | None) -> None:
    """Deletions from lists of scalars, and an order for lists that the patch otherwise leaves alone."""
    for directive, value in patch.items():
        if directive.startswith(_DELETE_ITEMS):
            key = directive.removeprefix(_DELETE_ITEMS)
            doomed = _list(value, directive)
            if isinstance(result.get(key), list):
                result[key] = [item for item in result[key] if item not in doomed]
        elif directive.startswith(_ORDER):
            key = directive.removeprefix(_ORDER)
            known = _field(of, key)
            if known and key not in patch and isinstance(result.get(key), list):
                result[key] = _ordered(result[key], result[key], _list(value, directive), known.merge_key)


def _merge_list(before: list[Any], patch: list[Any], known: Field, order: Any) -> list[Any]:
    item = known.type.item if isinstance(known.type, Sequence) else Scalar("any")
    if isinstance(item, Scalar):
        merged = before + [value for value in _distinct(patch) if value not in before]
    else:
        merged = _merge_items(before, patch, item, known.merge_key)
    return _ordered(merged, before, _order(patch, order, known.merge_key), known.merge_key)


def _order(patch: list[Any], order: Any, merge_key: str) -> list[Any]:
    """The items whose order the patch lays down: its own, or those of its $setElementOrder, which must agree."""
    own = [one for one in patch if not (isinstance(one, dict) and _DIRECTIVE in one)]
    if order is None:
        return own
    wanted = iter([_identity(one, merge_key) for one in _list(order, _ORDER)])
    if not all(_identity(one, merge_key) in wanted for one in own):
        raise _bad(f"the order of the items in the patch does not match {_ORDER.rstrip('/')}")
    return list(order)


def _merge_items(before: list[Any], patch: list[Any], item: Type, merge_key: str) -> list[Any]:
    of = item if isinstance(item, Struct | Table) else None
    entries = [_entry(entry) for entry in patch]
    if any(entry.get(_DIRECTIVE) == "replace" for entry in entries):
        # one item {$patch: replace} says: the rest of this list is the whole list
        fresh = [entry for entry in entries if _DIRECTIVE not in entry]
        return [_merge_map({}, entry, of) for entry in fresh]
    merged = list(before)
    for entry in entries:
        key = entry.get(merge_key)
        if key is None:
            raise _bad(f"a list item of the patch lacks its merge key {merge_key!r}")
        found = [i for i, one in enumerate(merged) if isinstance(one, dict) and one.get(merge_key) == key]
        if entry.get(_DIRECTIVE) == "delete":
            merged = [one for i, one in enumerate(merged) if i not in found]
        elif found:
            merged[found[0]] = _merge_map(merged[found[0]], entry, of)
        else:
            merged.append(_merge_map({}, entry, of))
    return merged


def _ordered(merged: list[Any], before: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """`merged`: the items that `order` names in that order, and the others among them where they stood before."""
    wanted = [_identity(value, merge_key) for value in order]
    earlier = [_identity(value, merge_key) for value in before]
    named = sorted(
        (one for one in merged if _identity(one, merge_key) in wanted),
        key=lambda one: wanted.index(_identity(one, merge_key)),
    )
    others = [one for one in merged if _identity(one, merge_key) not in wanted]
    result: list[Any] = []
    for other in others:
        mine = _identity(other, merge_key)
        while named and not _stood_before(mine, _identity(named[0], merge_key), earlier):
            result.append(named.pop(0))
        result.append(other)
    return result + named


def _stood_before(one: Any, other: Any, earlier: list[Any]) -> bool:
    return one in earlier and other in earlier and earlier.index(one) < earlier.index(other)


def _identity(value: Any, merge_key: str) -> Any:
    return value.get(merge_key) if isinstance(value, dict) and merge_key else value


def _field(of: Struct | Table | None, key: str) -> Field | None:
    match of:
        case Struct():
            return fields(of).get(key)
        case Table(value):
            return Field(value, False, frozenset(), "")
        case None:
            return None


def _entry(value: Any) -> Object:
    if not isinstance(value, dict):
        raise _bad("a list of objects cannot be merged with a value that is no object")
    return value


def _list(value: Any, directive: str) -> list[Any]:
    if not isinstance(value, list):
        raise _bad(f"{directive} needs a list")
    return value


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
