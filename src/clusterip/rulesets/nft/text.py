"""Values -> text that `nft -f` loads and lists back as the same values. The inverse of `parse`.

Rules of iptables inside a table (`Xt`) are printed as nft names them; no nft loads those.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from clusterip.rulesets.nft import values as v


def ruleset_text(ruleset: v.Ruleset) -> str:
    return "\n".join(map(table_text, ruleset))


def table_text(table: v.Table) -> str:
    lines = [f"table {table.family} {table.name} {{"]
    lines += [f"\tcomment {_quoted(table.comment)}"] if table.comment else []
    lines += [f"\tflags {','.join(table.flags)}"] if table.flags else []
    for other in table.others:
        lines += [*(f"\t{line}" for line in other.split("\n")), ""]
    for found in table.sets.values():
        lines += [f"\t{line}" for line in _set_lines(found)]
    for chain in table.chains.values():
        lines += [f"\t{line}" for line in _chain_lines(chain)]
    return "\n".join([*lines, "}", ""])


def _set_lines(found: v.Set) -> Iterator[str]:
    yield f"{'map' if found.values else 'set'} {found.name} {{"
    types = " . ".join(found.types) + (f" : {' . '.join(found.values)}" if found.values else "")
    yield f"\t{'typeof' if found.typeof else 'type'} {types}"
    if found.flags:
        yield f"\tflags {','.join(found.flags)}"
    if found.timeout:
        yield f"\ttimeout {found.timeout}"
    if found.size:
        yield f"\tsize {found.size}"
    yield from (f"\t{line}" for line in found.more)
    if found.comment:
        yield f"\tcomment {_quoted(found.comment)}"
    if found.elements:
        hexadecimal = found.types == ("mark",)
        elements = ",\n\t\t\t     ".join(element_text(e, hexadecimal) for e in found.elements)
        yield f"\telements = {{ {elements} }}"
    yield "}\n"


def _chain_lines(chain: v.Chain) -> Iterator[str]:
    yield f"chain {chain.name} {{"
    if chain.comment:
        yield f"\tcomment {_quoted(chain.comment)}"
    if chain.hook:
        yield f"\t{hook_text(chain.hook)}"
    yield from (f"\t{rule_text(rule)}" for rule in chain.rules)
    yield "}\n"


def hook_text(hook: v.Hook) -> str:
    devices = f" devices = {{ {', '.join(map(_quoted, hook.devices))} }}" if hook.devices else ""
    return f"type {hook.type} hook {hook.hook}{devices} priority {hook.priority}; policy {hook.policy};"


def rule_text(rule: v.Rule) -> str:
    """One line of a chain, without its handle."""
    comment = (f"comment {_quoted(rule.comment)}",) if rule.comment else ()
    return " ".join((*map(statement_text, rule.statements), *comment))


def statement_text(statement: v.Statement) -> str:
    match statement:
        case v.Match():
            return _match(statement)
        case v.VerdictMap(key, mapped):
            return f"{expression_text(key)} vmap {expression_text(mapped, hexadecimal=_is_mark(key))}"
        case v.Accept() | v.Drop() | v.Return() | v.Continue() | v.Jump() | v.Goto():
            return verdict_text(statement)
        case v.Reject(how):
            return f"reject with {how}" if how else "reject"
        case v.Nat():
            return _nat(statement)
        case v.Mangle(target, value):
            hexadecimal = _is_mark(target)
            return f"{expression_text(target)} set {expression_text(value, hexadecimal=hexadecimal)}"
        case v.Update():
            return _update(statement)
        case v.Xt(kind, name, text):
            return _join(("xt", kind, _quoted(name), text))
        case v.OtherStatement(text):
            return text
        case _:
            return _plain(statement)


def _plain(statement: v.Counter | v.Limit | v.Log | v.NoTrack) -> str:
    match statement:
        case v.Counter(packets, octets, name):
            return f"counter name {_quoted(name)}" if name else f"counter packets {packets} bytes {octets}"
        case v.Limit(rate, over, burst):
            return _join(("limit rate", "over" if over else "", rate, f"burst {burst}" if burst else ""))
        case v.Log(options):
            return _join(("log", options))
        case v.NoTrack():
            return "notrack"
        case _:
            assert_never(statement)


def verdict_text(verdict: v.Verdict) -> str:
    match verdict:
        case v.Jump(chain):
            return f"jump {chain}"
        case v.Goto(chain):
            return f"goto {chain}"
        case v.Accept() | v.Drop() | v.Return() | v.Continue():
            return type(verdict).__name__.lower()
        case _:
            assert_never(verdict)


def _match(match: v.Match) -> str:
    right = expression_text(match.right, hexadecimal=_is_mark(match.left), among=isinstance(match.left, v.Binary))
    return _join((expression_text(match.left), match.operator, right))


def _nat(nat: v.Nat) -> str:
    to = ""
    if isinstance(nat.address, v.Address | v.Range) or (nat.address is None and nat.port is not None):
        to = _address_and_port(nat)
    elif nat.address is not None:
        port = f" : {expression_text(nat.port)}" if nat.port is not None else ""
        to = expression_text(nat.address) + port
    return _join((nat.kind, nat.family, nat.form, f"to {to}" if to else "", ",".join(nat.flags)))


def _address_and_port(nat: v.Nat) -> str:
    if nat.port is None:
        return expression_text(nat.address) if nat.address else ""
    if not isinstance(nat.port, v.Number | v.Range):
        return f"{expression_text(nat.address) if nat.address else ''} : {expression_text(nat.port)}".strip()
    match nat.address:
        case v.Range(first, last):
            shown = f"{_bracketed(expression_text(first))}-{_bracketed(expression_text(last))}"
        case None:
            shown = ""
        case address:
            shown = _bracketed(expression_text(address))
    return f"{shown}:{expression_text(nat.port)}"


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _update(update: v.Update) -> str:
    timeout = f"timeout {update.timeout}" if update.timeout else ""
    value = f": {expression_text(update.value)}" if update.value is not None else ""
    within = (expression_text(update.key), timeout, *map(statement_text, update.statements), value)
    return f"{update.operation} @{update.set} {{ {_join(within)} }}"


def expression_text(expression: v.Expression, *, hexadecimal: bool = False, among: bool = False) -> str:
    """`hexadecimal`: as nft writes numbers beside a mark. `among`: within "&" and "|", where flags need parentheses."""
    match expression:
        case v.Number(value):
            return f"0x{value:08x}" if hexadecimal else str(value)
        case v.Address(text) | v.Word(text) | v.OtherExpression(text):
            return text
        case v.Prefix(address, length):
            return f"{address}/{length}"
        case v.Quoted(text):
            return _quoted(text)
        case v.Any():
            return "*"
        case v.Range(first, last):
            return f"{expression_text(first, hexadecimal=hexadecimal)}-{expression_text(last, hexadecimal=hexadecimal)}"
        case v.Flags(parts):
            shown = [expression_text(part) for part in parts]
            return f"({' | '.join(shown)})" if among else ",".join(shown)
        case v.SetName(name):
            return f"@{name}"
        case v.Elements(elements):
            return f"{{ {', '.join(element_text(e, hexadecimal) for e in elements)} }}"
        case v.Concat(parts):
            return " . ".join(expression_text(part, hexadecimal=hexadecimal, among=True) for part in parts)
        case _:
            return _computed(expression, hexadecimal=hexadecimal)


def _computed(
    expression: v.Payload | v.Meta | v.Ct | v.Fib | v.Numgen | v.JHash | v.Binary | v.Lookup, *, hexadecimal: bool
) -> str:
    match expression:
        case v.Payload(protocol, field):
            return f"{protocol} {field}"
        case v.Meta(key):
            return key if key in _BARE else f"meta {key}"
        case v.Ct(key, direction):
            return _join(("ct", direction, key))
        case v.Fib(by, result):
            return f"fib {' . '.join(by)} {result}"
        case v.Numgen(mode, modulus, offset):
            return f"numgen {mode} mod {modulus}" + (f" offset {offset}" if offset else "")
        case v.JHash(key, modulus, seed, offset):
            head = f"jhash {expression_text(key)}" if key is not None else "symhash"
            seeded = f" seed 0x{seed:x}" if seed is not None else ""
            return f"{head} mod {modulus}{seeded}" + (f" offset {offset}" if offset else "")
        case v.Binary():
            return _binary(expression, hexadecimal or _is_mark(expression))
        case v.Lookup(key, mapped):
            return f"{expression_text(key)} map {expression_text(mapped)}"
        case _:
            assert_never(expression)


_BARE = frozenset(("iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup", "iiftype", "oiftype", "skuid", "skgid"))
_BINDS = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4}


def _binary(binary: v.Binary, hexadecimal: bool) -> str:
    def side(expression: v.Expression, least: int) -> str:
        text = expression_text(expression, hexadecimal=hexadecimal, among=True)
        loose = isinstance(expression, v.Binary) and _BINDS[expression.operator] < least
        return f"({text})" if loose or isinstance(expression, v.Concat | v.Lookup) else text

    binds = _BINDS[binary.operator]
    return f"{side(binary.left, binds)} {binary.operator} {side(binary.right, binds + 1)}"


def _is_mark(expression: v.Expression) -> bool:
    match expression:
        case v.Meta("mark") | v.Ct("mark"):
            return True
        case v.Binary(_, left, _):
            return _is_mark(left)
        case _:
            return False


def element_text(element: v.Element, hexadecimal: bool = False) -> str:
    match element.value:
        case None:
            value = ""
        case v.Accept() | v.Drop() | v.Return() | v.Continue() | v.Jump() | v.Goto() as verdict:
            value = f": {verdict_text(verdict)}"
        case expression:
            value = f": {expression_text(expression)}"
    return _join(
        (
            expression_text(element.key, hexadecimal=hexadecimal),
            *map(statement_text, element.counters),
            f"timeout {element.timeout}" if element.timeout else "",
            f"expires {element.expires}" if element.expires else "",
            f"comment {_quoted(element.comment)}" if element.comment else "",
            value,
        )
    )


def _quoted(text: str) -> str:
    return f'"{text}"'


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)
