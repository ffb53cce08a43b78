"""Statements and expressions of `nft -j`, as decoded from JSON."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Literal, TypeAlias, cast

import msgspec

from clusterip.rulesets.nft import values as v
from clusterip.rulesets.nft.expressions import Operator, joined
from clusterip.rulesets.nft.literals import literal

JSON: TypeAlias = "str | int | float | bool | list[JSON] | dict[str, JSON] | None"


class Unreadable(Exception):
    """This JSON is no expression; the caller keeps it as text."""


_NOT_LIKE_THAT = (Unreadable, KeyError, ValueError, TypeError, RecursionError)

_Quoted: TypeAlias = tuple[bool, ...]  # of each part of a value: whether it names an interface


def statement(given: JSON, family: str) -> v.Statement:
    """Never fails: what cannot be understood is an OtherStatement of its JSON."""
    try:
        kind, body = _only(given)
        if kind == "reject":
            return _reject(body, family)
        read = _STATEMENTS.get(kind)
        if read is not None:
            return read(body)
        return _verdict(kind, body) or _counted(kind, body)
    except _NOT_LIKE_THAT:
        return v.OtherStatement(msgspec.json.encode(given).decode())


def _only(given: JSON) -> tuple[str, JSON]:
    if isinstance(given, dict) and len(given) == 1:
        return next(iter(given.items()))
    raise Unreadable


def _object(given: JSON) -> Mapping[str, JSON]:
    if isinstance(given, dict):
        return given
    raise Unreadable


def _text(given: JSON) -> str:
    if isinstance(given, str):
        return given
    raise Unreadable


def _number(given: JSON) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise Unreadable


def _verdict(kind: str, body: JSON) -> v.Verdict | None:
    match kind:
        case "accept":
            return v.Accept()
        case "drop":
            return v.Drop()
        case "return":
            return v.Return()
        case "continue":
            return v.Continue()
        case "jump":
            return v.Jump(_text(_object(body)["target"]))
        case "goto":
            return v.Goto(_text(_object(body)["target"]))
    return None


def _counted(kind: str, body: JSON) -> v.Statement:
    """Matches that nft's text has as statements of their own."""
    given = _object(body)
    if kind == "ct count":
        return v.OtherStatement(f"ct count{' over' if given.get('inv') else ''} {_number(given['val'])}")
    if kind == "quota":
        over = "over " if given.get("inv") else ""
        return v.OtherStatement(f"quota {over}{_number(given['val'])} {given.get('val_unit', 'bytes')}")
    raise Unreadable


def _match(body: JSON) -> v.Match:
    given = _object(body)
    left = expression(given["left"])
    operator = _text(given.get("op", "=="))
    right = expression(given["right"], _quoted(left))
    if operator == "in" or (operator == "==" and not isinstance(left, v.Binary) and not _has_flags(left)):
        operator = ""  # as the text has it
    return v.Match(left, cast(Literal["", "==", "!=", "<", ">", "<=", ">="], operator), right)


def _has_flags(left: v.Expression) -> bool:
    """For these "equal" and "any of" differ; sets are looked up all the same."""
    return left == v.Payload("tcp", "flags")


def _quoted(left: v.Expression) -> _Quoted:
    match left:
        case v.Concat(parts):
            return tuple(flag for part in parts for flag in _quoted(part)[:1])
        case v.Meta("iif" | "oif" | "iifname" | "oifname" | "time" | "hour" | "day") | v.Ct("helper"):
            return (True,)
    return (False,)


def _vmap(body: JSON) -> v.VerdictMap:
    given = _object(body)
    key = expression(given["key"])
    return v.VerdictMap(key, _set(given["data"], _quoted(key), is_map=True))


def _set(given: JSON, quoted: _Quoted, *, is_map: bool) -> v.SetName | v.Elements:
    if isinstance(given, str) and given[:1] == "@":
        return v.SetName(given[1:])
    kind, body = _only(given)
    if kind != "set":
        raise Unreadable
    items = body if isinstance(body, list) else [body]
    return v.Elements(tuple(element(item, quoted, is_map) for item in items))


def tolerant_element(given: JSON, quoted: _Quoted, is_map: bool) -> v.Element:
    """Never fails: what cannot be understood is an OtherExpression of its JSON."""
    try:
        return element(given, quoted, is_map)
    except _NOT_LIKE_THAT:
        return v.Element(v.OtherExpression(msgspec.json.encode(given).decode()))


def element(given: JSON, quoted: _Quoted, is_map: bool) -> v.Element:
    """Raises one of `_NOT_LIKE_THAT`."""
    if is_map:
        if not isinstance(given, list) or len(given) != 2:
            raise Unreadable
        key = element(given[0], quoted, is_map=False)
        value = _value_of_map(given[1])
        return v.Element(key.key, value, key.comment, key.timeout, key.expires, key.counters)
    if not (isinstance(given, dict) and "elem" in given):
        return v.Element(expression(given, quoted))
    body = _object(given["elem"])
    counters = [statement({kind: body[kind]}, "") for kind in ("counter", "limit") if kind in body]
    stmts = body.get("stmt", [])
    counters += [statement(one, "") for one in (stmts if isinstance(stmts, list) else [])]
    return v.Element(
        expression(body["val"], quoted),
        None,
        _text(body.get("comment", "")),
        duration(_number(body["timeout"])) if "timeout" in body else "",
        duration(_number(body["expires"])) if "expires" in body else "",
        tuple(counters),
    )


def _value_of_map(given: JSON) -> v.Expression | v.Verdict:
    if isinstance(given, dict) and len(given) == 1:
        kind, body = next(iter(given.items()))
        if (verdict := _verdict(kind, body)) is not None:
            return verdict
    return expression(given)


def _mangle(body: JSON) -> v.Mangle:
    given = _object(body)
    target = expression(given["key"])
    return v.Mangle(target, expression(given["value"], _quoted(target)))


def _reject(body: JSON, family: str) -> v.Reject:
    given = _object(body or {})
    kind, why = _text(given.get("type", "")), _text(given.get("expr", ""))
    default = {"ip": "icmp", "ip6": "icmpv6"}.get(family, "icmpx")
    return v.Reject("" if (kind, why) == (default, "port-unreachable") else f"{kind} {why}".strip())


def _nat(kind: Literal["dnat", "snat", "masquerade", "redirect"]) -> Callable[[JSON], v.Nat]:
    def read(body: JSON) -> v.Nat:
        given = _object(body or {})
        flags = given.get("flags", [])
        form = given.get("type_flags", "")
        return v.Nat(
            kind,
            expression(given["addr"]) if "addr" in given else None,
            expression(given["port"]) if "port" in given else None,
            cast(Literal["ip", "ip6", ""], _text(given.get("family", ""))),
            " ".join(map(str, form)) if isinstance(form, list) else _text(form),
            tuple(flag for flag in ([flags] if isinstance(flags, str) else map(str, cast("list[JSON]", flags)))
                  if flag != "netmap"),
        )  # fmt: skip

    return read


def _update(body: JSON) -> v.Update:
    given = _object(body)
    key = element(given["elem"], (False,), is_map=False)
    stmts = given.get("stmt", [])
    statements = tuple(statement(one, "") for one in (stmts if isinstance(stmts, list) else []))
    value = expression(given["data"]) if "data" in given else None
    operation = cast(Literal["add", "update", "delete"], _text(given["op"]))
    name = _text(given.get("set", given.get("map", "")))
    return v.Update(operation, name.removeprefix("@"), key.key, value, key.timeout, statements)


def _counter(body: JSON) -> v.Counter:
    if isinstance(body, str):
        return v.Counter(name=body)
    given = _object(body or {})
    return v.Counter(_number(given.get("packets", 0)), _number(given.get("bytes", 0)))


def _limit(body: JSON) -> v.Statement:
    if isinstance(body, str):
        return v.OtherStatement(f'limit name "{body}"')
    given = _object(body)
    unit = _text(given.get("rate_unit", "packets"))
    rate = f"{_number(given['rate'])}{'' if unit == 'packets' else f' {unit}'}/{_text(given['per'])}"
    burst, burst_unit = _number(given.get("burst", 0)), _text(given.get("burst_unit", "packets"))
    usual = burst == 0 or (burst == 5 and burst_unit == "packets")
    return v.Limit(rate, bool(given.get("inv")), "" if usual else f"{burst} {burst_unit}")


def _log(body: JSON) -> v.Log:
    given = _object(body or {})
    words: list[str] = []
    for name, value in given.items():
        shown = (
            f'"{value}"' if name == "prefix" else ",".join(map(str, value)) if isinstance(value, list) else str(value)
        )
        words += (name, shown)
    return v.Log(" ".join(words))


def _xt(body: JSON) -> v.Xt:
    given = _object(body or {})
    kind = _text(given.get("type", "match"))
    return v.Xt("target" if kind == "target" else "match", _text(given.get("name", "")))


_STATEMENTS: dict[str, Callable[[JSON], v.Statement]] = {
    "match": _match,
    "vmap": _vmap,
    "mangle": _mangle,
    "dnat": _nat("dnat"),
    "snat": _nat("snat"),
    "masquerade": _nat("masquerade"),
    "redirect": _nat("redirect"),
    "set": _update,
    "map": _update,
    "counter": _counter,
    "limit": _limit,
    "log": _log,
    "notrack": lambda _: v.NoTrack(),
    "xt": _xt,
}

# --- expressions ----------------------------------------------------------------------------------------------------


def expression(given: JSON, quoted: _Quoted = (False,)) -> v.Expression:
    """`quoted`: of each part, whether its strings name interfaces. Raises one of `_NOT_LIKE_THAT`."""
    match given:
        case bool():
            return v.Word("exists" if given else "missing")
        case int():
            return v.Number(given)
        case str():
            if given[:1] == "@":
                return v.SetName(given[1:])
            return v.Any() if given == "*" else v.Quoted(given) if quoted[0] else literal(given)
        case list():
            return v.Flags(tuple(expression(part, quoted) for part in given))
    kind, body = _only(given)
    if kind == "concat":
        parts = body if isinstance(body, list) else []
        each = quoted if len(quoted) == len(parts) else (False,) * len(parts)
        return v.Concat(tuple(expression(part, (flag,)) for part, flag in zip(parts, each, strict=True)))
    if kind in ("&", "|", "^", "<<", ">>") and isinstance(body, list) and len(body) > 1:
        return reduce(lambda left, right: joined(left, cast(Operator, kind), right), map(expression, body))
    read = _EXPRESSIONS.get(kind)
    return read(body, quoted) if read else _other(kind, body)


def _payload(body: JSON, _: _Quoted) -> v.Expression:
    given = _object(body)
    if "base" in given:
        return v.OtherExpression(f"@{given['base']},{given['offset']},{given['len']}")
    return v.Payload(_text(given["protocol"]), _text(given["field"]))


def _ct(body: JSON, _: _Quoted) -> v.Ct:
    given = _object(body)
    key = _text(given["key"])
    if "family" in given:
        key = f"{given['family']} {key}"
    return v.Ct(key, cast(Literal["original", "reply", ""], _text(given.get("dir", ""))))


def _fib(body: JSON, _: _Quoted) -> v.Fib:
    given = _object(body)
    flags = given.get("flags", [])
    return v.Fib(
        (flags,) if isinstance(flags, str) else tuple(map(str, cast("Sequence[JSON]", flags))), _text(given["result"])
    )


def _numgen(body: JSON, _: _Quoted) -> v.Numgen:
    given = _object(body)
    mode = cast(Literal["random", "inc"], _text(given["mode"]))
    return v.Numgen(mode, _number(given["mod"]), _number(given.get("offset", 0)))


def _hash(body: JSON, _: _Quoted) -> v.JHash:
    given = _object(body)
    key = expression(given["expr"]) if "expr" in given else None
    seed = _number(given["seed"]) if "seed" in given else None
    return v.JHash(key, _number(given["mod"]), seed, _number(given.get("offset", 0)))


def _range(body: JSON, quoted: _Quoted) -> v.Range:
    ends = body if isinstance(body, list) and len(body) == 2 else []
    first, last = (expression(end, quoted) for end in ends)
    allowed = v.Number | v.Address | v.Word | v.Quoted | v.Concat
    if not isinstance(first, allowed) or not isinstance(last, allowed):
        raise Unreadable
    return v.Range(first, last)


def _prefix(body: JSON, _: _Quoted) -> v.Prefix:
    given = _object(body)
    return v.Prefix(_text(given["addr"]), _number(given["len"]))


def _lookup(body: JSON, _: _Quoted) -> v.Lookup:
    given = _object(body)
    key = expression(given["key"])
    return v.Lookup(key, _set(given["data"], _quoted(key), is_map=True))


def _elem(body: JSON, quoted: _Quoted) -> v.Expression:
    return expression(_object(body)["val"], quoted)


_EXPRESSIONS: dict[str, Callable[[JSON, _Quoted], v.Expression]] = {
    "payload": _payload,
    "meta": lambda body, _: v.Meta(_text(_object(body)["key"])),
    "ct": _ct,
    "fib": _fib,
    "numgen": _numgen,
    "jhash": _hash,
    "symhash": _hash,
    "range": _range,
    "prefix": _prefix,
    "map": _lookup,
    "set": lambda body, quoted: _set({"set": body}, quoted, is_map=False),
    "elem": _elem,
}


def _other(kind: str, body: JSON) -> v.OtherExpression:
    given = _object(body)
    if kind == "rt" and "family" in given:
        return v.OtherExpression(f"rt {given['family']} {given['key']}")
    names = [str(given[name]) for name in ("name", "key", "field") if name in given]
    if kind not in ("rt", "socket", "osf", "tcp option", "ip option", "exthdr", "sctp chunk", "ipsec"):
        raise Unreadable
    return v.OtherExpression(" ".join((kind, *names)))


_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def duration(seconds: int) -> str:
    """10800 -> "3h", as nft's text has it."""
    words = ""
    for unit, length in _UNITS:
        count, seconds = divmod(seconds, length)
        words += f"{count}{unit}" if count else ""
    return words or "0s"
