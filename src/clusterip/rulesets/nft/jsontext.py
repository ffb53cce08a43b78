"""What `nft -j list ruleset` prints -> the same values as its text gives. Source: libnftables-json(5)."""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec
from msgspec import Raw, Struct

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading
from clusterip.rulesets.lazy import Lazy
from clusterip.rulesets.nft import values as v
from clusterip.rulesets.nft.jsonrules import JSON, duration, statement, tolerant_element


class _Table(Struct, gc=False):
    family: Literal["ip", "ip6", "inet", "arp", "bridge", "netdev"]
    name: str
    handle: int = 0
    flags: list[str] | str = ""
    comment: str = ""


class _Chain(Struct, gc=False):
    family: str
    table: str
    name: str
    handle: int = 0
    type: Literal["filter", "nat", "route"] | None = None
    hook: str = ""
    prio: int = 0
    policy: Literal["accept", "drop"] = "accept"
    dev: list[str] | str = ""
    comment: str = ""


class _Rule(Struct, gc=False):
    family: str
    table: str
    chain: str
    expr: Raw = Raw(b"[]")
    handle: int = 0
    comment: str = ""


class _Set(Struct, gc=False):
    family: str
    table: str
    name: str
    type: Raw = Raw(b'""')  # a type, several, or expressions ("typeof")
    map: Raw = Raw(b'""')
    handle: int = 0
    flags: list[str] | str = ""
    timeout: int = 0
    size: int = 0
    elem: Raw = Raw(b"[]")
    comment: str = ""
    more: dict[str, object] = {}


class _Element(Struct, gc=False):
    family: str
    table: str
    name: str
    elem: Raw = Raw(b"[]")


class _Item(Struct, gc=False):
    table: _Table | None = None
    chain: _Chain | None = None
    rule: _Rule | None = None
    set: _Set | None = None
    map: _Set | None = None
    element: _Element | None = None
    metainfo: Raw = Raw()
    # Named things that no packet is judged by here.
    counter: Raw = Raw()
    quota: Raw = Raw()
    limit: Raw = Raw()
    flowtable: Raw = Raw()
    ct_helper: Raw = msgspec.field(name="ct helper", default=Raw())
    ct_timeout: Raw = msgspec.field(name="ct timeout", default=Raw())
    ct_expectation: Raw = msgspec.field(name="ct expectation", default=Raw())
    secmark: Raw = Raw()
    synproxy: Raw = Raw()


class _Document(Struct):
    nftables: list[_Item]


class _Open(Struct):
    table: _Table
    chains: dict[str, _Chain] = {}
    rules: dict[str, list[_Rule]] = {}
    sets: dict[str, _Set] = {}
    maps: set[str] = set()
    added: dict[str, list[Raw]] = {}
    others: list[str] = []


def read(text: str | bytes, origin: Origin = INPUT) -> Reading[v.Ruleset]:
    """The whole of it is one line as a rule, so a problem has no place but the file."""
    problems = Problems(origin)
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, RecursionError) as error:
        problems.add(0, f"this is not what nft -j prints: {error}")
        return Reading(v.Ruleset({}), 0, problems.all())
    tables: dict[tuple[str, str], _Open] = {}
    facts = 0
    for item in document.nftables:
        facts += _take(item, tables, problems)
    found = {v.TableName(*key): _table(opened) for key, opened in tables.items()}
    return Reading(v.Ruleset(found), facts, problems.all())


def _take(item: _Item, tables: dict[tuple[str, str], _Open], problems: Problems) -> int:
    """1 if it is a rule or a set."""
    if item.table is not None:
        tables.setdefault((item.table.family, item.table.name), _Open(item.table))
        return 0
    within = item.chain or item.rule or item.set or item.map or item.element
    if within is None:
        return _other(item, tables)
    opened = tables.get((within.family, within.table))
    if opened is None:
        problems.add(-1, f"table {within.family} {within.table} is not listed, but something in it is")
        return 0
    match within:
        case _Chain():
            opened.chains[within.name] = within
        case _Rule():
            opened.rules.setdefault(within.chain, []).append(within)
            if within.chain not in opened.chains:
                problems.add(-1, f"chain {within.chain} has rules but is not listed")
                opened.chains[within.chain] = _Chain(within.family, within.table, within.chain)
            return 1
        case _Set():
            opened.sets[within.name] = within
            if item.map is not None:
                opened.maps.add(within.name)
            return 1
        case _Element():
            opened.added.setdefault(within.name, []).append(within.elem)
    return 0


class _Named(Struct):
    family: str = ""
    table: str = ""
    name: str = ""


def _other(item: _Item, tables: dict[tuple[str, str], _Open]) -> int:
    for kind in ("counter", "quota", "limit", "flowtable", "ct_helper", "ct_timeout", "ct_expectation"):
        raw = getattr(item, kind)
        if bytes(raw):
            named = _decoded_as(_Named, raw)
            opened = tables.get((named.family, named.table)) if named else None
            if named and opened:
                opened.others.append(f"{kind.replace('_', ' ')} {named.name} {bytes(raw).decode()}")
    return 0


def _decoded_as(kind: type[_Named], raw: Raw) -> _Named | None:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError:
        return None


def _table(opened: _Open) -> v.Table:
    return v.Table(
        opened.table.family,
        opened.table.name,
        Lazy(opened.chains, lambda name: _chain(opened.chains[name], opened.rules.get(name, ()))),
        Lazy(opened.sets, lambda name: _set(opened.sets[name], name in opened.maps, opened.added.get(name, ()))),
        _words(opened.table.flags),
        opened.table.comment,
        opened.table.handle,
        tuple(opened.others),
    )


def _chain(chain: _Chain, rules: Sequence[_Rule]) -> v.Chain:
    hook = v.Hook(chain.type, chain.hook, chain.prio, chain.policy, _words(chain.dev)) if chain.type else None
    return v.Chain(chain.name, tuple(map(_rule, rules)), hook, chain.comment, chain.handle)


def _rule(rule: _Rule) -> v.Rule:
    expressions = _decoded(rule.expr)
    statements = tuple(statement(e, rule.family) for e in (expressions if isinstance(expressions, list) else ()))
    return v.Rule(statements, rule.comment, rule.handle)


def _set(given: _Set, is_map: bool, added: Sequence[Raw]) -> v.Set:
    types, typeof = _types(given.type)
    values, _ = _types(given.map)
    quoted = tuple(kind == "ifname" for kind in types)
    elements: list[v.Element] = []
    for raw in (given.elem, *added):
        found = _decoded(raw)
        elements += [tolerant_element(one, quoted, is_map) for one in (found if isinstance(found, list) else ())]
    return v.Set(
        given.name,
        types,
        values,
        typeof,
        _words(given.flags),
        duration(given.timeout) if given.timeout else "",
        given.size,
        tuple(elements),
        given.comment,
        given.handle,
    )


def _types(raw: Raw) -> tuple[tuple[str, ...], bool]:
    """Names of types; or of expressions, and True."""
    given = _decoded(raw)
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(" . ")) if given else (), False
    if isinstance(given, list) and all(isinstance(part, str) for part in given):
        return tuple(map(str, given)), False
    return (msgspec.json.encode(given).decode(),), True


def _decoded(raw: Raw) -> JSON:
    return cast(JSON, msgspec.json.decode(raw))


def _words(given: list[str] | str) -> tuple[str, ...]:
    return tuple(given) if isinstance(given, list) else (given,) if given else ()
