"""Rules: a line of a chain -> its statements."""

import re
from collections.abc import Callable
from typing import Literal, cast

from clusterip.rulesets.nft import values as v
from clusterip.rulesets.nft.expressions import (
    Unreadable,
    Words,
    counter,
    element,
    expression,
    limit,
    set_or_elements,
    verdict,
)
from clusterip.rulesets.nft.literals import TOKEN, literal

_HANDLE = re.compile(r"\s+#\s*handle (\d{1,18})\s*$")
_COMPARISONS = {"==": "==", "!=": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_COMPARISONS |= {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}


def rule(text: str) -> v.Rule:
    """Never fails: what cannot be understood is one `OtherStatement`, from where it begins to the end of the rule."""
    handle = 0
    if "# handle" in text and (found := _HANDLE.search(text)):
        handle, text = int(found[1]), text[: found.start()]
    words = Words(TOKEN.findall(text))
    comment = ""
    if len(words.words) > 1 and words.words[-2] == "comment" and words.words[-1][:1] == '"':
        comment = words.words.pop()[1:-1]
        words.words.pop()
    statements: list[v.Statement] = []
    while words.at < len(words.words):
        begin = words.at
        try:
            statements.append(statement(words))
        except Unreadable:
            statements.append(v.OtherStatement(" ".join(words.words[begin:])))
            break
    return v.Rule(tuple(statements), comment, handle)


def statement(words: Words) -> v.Statement:
    """Raises Unreadable."""
    found = verdict(words)
    if found is not None:
        return found
    read = _STATEMENTS.get(words.peek())
    if read is not None:
        words.take()
        return read(words)
    return _compared(words)


def _compared(words: Words) -> v.Statement:
    """ "ip daddr 10.96.0.1", "... vmap @service-ips", "meta mark set 1", "tcp flags syn / fin,syn"."""
    left = expression(words)
    if isinstance(left, v.Word | v.Number | v.Quoted | v.Any | v.Flags | v.SetName | v.Elements):
        raise Unreadable("it begins with a value")
    if words.taken("vmap"):
        return v.VerdictMap(left, set_or_elements(words))
    if words.taken("set"):
        return v.Mangle(left, expression(words, value=True))
    if isinstance(left, v.Ct) and left.key == "count":
        return v.OtherStatement(" ".join(["ct count", *_counted(words)]))
    operator = _COMPARISONS.get(words.peek(), "")
    if operator:
        words.take()
    right = expression(words, value=True)
    if words.taken("/"):  # "tcp flags syn / fin,syn": of these bits just those
        return v.Match(v.Binary("&", left, expression(words, value=True)), cast("_Comparison", operator or "=="), right)
    return v.Match(left, cast("_Comparison", operator), right)


_Comparison = Literal["", "==", "!=", "<", ">", "<=", ">="]


def _counted(words: Words) -> list[str]:
    return [words.take(), words.take()] if words.peek() == "over" else [words.take()]


def _reject(words: Words) -> v.Reject:
    if not words.taken("with"):
        return v.Reject()
    kind = words.take()
    words.taken("type")  # "icmp type port-unreachable" of older versions
    return v.Reject(f"{kind} {words.take()}")


_FLAGS = frozenset(("random", "fully-random", "persistent", "netmap"))


def _nat(kind: Literal["dnat", "snat", "masquerade", "redirect"]) -> Callable[[Words], v.Nat]:
    def read(words: Words) -> v.Nat:
        family = words.take() if words.peek() in ("ip", "ip6") else ""
        form: list[str] = []
        while words.peek() in ("addr", "port", "prefix", "interval") or (form and words.peek() == "."):
            form.append(words.take())
        address, port = _nat_target(words) if words.taken("to") else (None, None)
        flags: list[str] = []
        while words.peek() and all(flag in _FLAGS for flag in words.peek().split(",")):
            flags += words.take().split(",")
        return v.Nat(kind, address, port, cast(Literal["ip", "ip6", ""], family), " ".join(form), tuple(flags))

    return read


_ADDRESS_PORT = re.compile(r"(\[[^\]]+\](?:-\[[^\]]+\])?|[^:]*):([\d-]+)")
_ADDRESS_THEN = re.compile(r"(\[[^\]]+\]|[\d.]+):([a-z]+)")


def _nat_target(words: Words) -> tuple[v.Expression | None, v.Expression | None]:
    found = _ADDRESS_PORT.fullmatch(words.peek())
    if found is not None:
        words.take()
        address = found[1].replace("[", "").replace("]", "")
        return (literal(address) if address else None), literal(found[2])
    if found := _ADDRESS_THEN.fullmatch(words.peek()):  # "10.0.0.7:tcp dport map ..."
        words.words[words.at] = found[2]
        return literal(found[1].strip("[]")), expression(words)
    if words.peek()[:1] == "[" and words.peek()[-1:] == "]":
        to: v.Expression | None = literal(words.take()[1:-1])
    else:
        to = None if words.peek() == ":" else expression(words)
    return to, (expression(words) if words.taken(":") else None)


def _update(operation: Literal["add", "update", "delete"]) -> Callable[[Words], v.Update]:
    def read(words: Words) -> v.Update:
        name = words.take()
        if name[:1] != "@":
            raise Unreadable(f"{operation} {name} names no set")
        words.expect("{")
        key = expression(words)
        timeout = words.take() if words.taken("timeout") else ""
        statements: list[v.Statement] = []
        while words.peek() not in ("}", ":"):
            statements.append(statement(words))
            timeout = words.take() if words.taken("timeout") else timeout
        value = None
        if words.taken(":"):
            value = expression(words)
        words.expect("}")
        return v.Update(operation, name[1:], key, value, timeout, tuple(statements))

    return read


_LOG_OPTIONS = frozenset(("prefix", "level", "group", "snaplen", "queue-threshold", "flags"))


def _log(words: Words) -> v.Log:
    taken: list[str] = []
    while words.peek() in _LOG_OPTIONS:
        taken.append(words.take())
        if taken[-1] == "flags" and words.peek() in ("tcp", "ip", "skuid", "ether", "all"):
            taken.append(words.take())
            if taken[-1] not in ("tcp", "ip"):
                continue
        taken.append(words.take())
    return v.Log(" ".join(taken))


def _xt(words: Words) -> v.Xt:
    kind = words.take()
    if kind not in ("match", "target"):
        raise Unreadable(f"xt {kind} is not known")
    return v.Xt(cast(Literal["match", "target"], kind), words.take().strip('"'))


_UNITS = frozenset(("bytes", "kbytes", "mbytes"))


def _quota(words: Words) -> v.OtherStatement:
    taken = ["quota"]
    if words.peek().isdecimal():  # "until" goes without saying
        taken.append(words.take())
    while words.peek() in ("over", "until", "used", "name") or (len(taken) > 1 and words.peek() in _UNITS):
        taken.append(words.take())
        if taken[-1] not in _UNITS:
            taken.append(words.take())
    return v.OtherStatement(" ".join(taken))


def _rest(first: str) -> Callable[[Words], v.OtherStatement]:
    """Statements that end a rule, or that nothing is known of."""

    def read(words: Words) -> v.OtherStatement:
        taken = [first]
        while words.peek():
            taken.append(words.take())
        return v.OtherStatement(" ".join(taken))

    return read


_STATEMENTS: dict[str, Callable[[Words], v.Statement]] = {
    "counter": counter,
    "limit": limit,
    "reject": _reject,
    "dnat": _nat("dnat"),
    "snat": _nat("snat"),
    "masquerade": _nat("masquerade"),
    "redirect": _nat("redirect"),
    "add": _update("add"),
    "update": _update("update"),
    "delete": _update("delete"),
    "log": _log,
    "notrack": lambda _: v.NoTrack(),
    "xt": _xt,
    "quota": _quota,
    **{name: _rest(name) for name in ("queue", "tproxy", "dup", "fwd", "flow", "synproxy", "last", "#")},
}


def elements(text: str) -> tuple[v.Element, ...]:
    """What stands between the braces behind "elements =". Never fails: what is not understood is an OtherExpression."""
    if '"' not in text and "{" not in text and _OPTION.search(text) is None:
        return tuple(_plain_element(part) for part in map(str.strip, text.split(",")) if part)
    words = Words(TOKEN.findall(text))
    found: list[v.Element] = []
    while words.peek():
        begin = words.at
        try:
            new = element(words)
        except Unreadable:
            new = []
        if not new or words.peek() not in ("", ","):
            words.at = begin
            new = [v.Element(v.OtherExpression(_up_to_comma(words)))]
        found += new
        words.taken(",")
    return tuple(found)


def _up_to_comma(words: Words) -> str:
    taken: list[str] = []
    while words.peek() not in ("", ","):
        taken.append(words.take())
    return " ".join(taken)


_OPTION = re.compile(r"\b(?:timeout|expires|counter|limit|comment|last)\b|[&|^(]|,\S| map ")


def _plain_element(text: str) -> v.Element:
    """One without options: "10.96.0.1 . tcp . 443 : goto service-x". It is what there are many of."""
    key, colon, value = text.partition(" : ")
    parts = [part.strip() for part in key.split(" . ")]
    if any(not part or " " in part for part in parts):
        return v.Element(v.OtherExpression(text))
    found = literal(parts[0]) if len(parts) == 1 else v.Concat(tuple(map(literal, parts)))
    if not colon:
        return v.Element(found)
    words = Words(value.split())
    try:
        given: v.Expression | v.Verdict = verdict(words) or expression(words, value=True)
    except Unreadable:
        return v.Element(v.OtherExpression(text))
    return v.Element(v.OtherExpression(text)) if words.peek() else v.Element(found, given)
