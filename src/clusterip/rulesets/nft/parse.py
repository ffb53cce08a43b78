"""What `nft list ruleset` or `nft list table` prints -> values. Chains and sets are read when first asked for."""

import re
from collections.abc import Sequence
from typing import Literal, cast

from msgspec import Struct

from clusterip.rulesets.evidence import INPUT, Origin, Places, Problems, Reading
from clusterip.rulesets.lazy import Lazy
from clusterip.rulesets.nft import values as v
from clusterip.rulesets.nft.literals import BRIDGE_PRIORITIES, PRIORITIES
from clusterip.rulesets.nft.rules import elements, rule

_TABLE = re.compile(r"table (ip|ip6|inet|arp|bridge|netdev) (\S+) \{(?:\s*# handle (\d{1,18}))?\s*(\})?")
_BLOCK = re.compile(r"([a-z][a-z ]*?) ([^\s{}]+) \{(?:\s*# handle (\d{1,18}))?")
_QUOTED = re.compile(r'"[^"]*"')
_COMMENT = re.compile(r'comment "([^"]*)"')
_HOOK = re.compile(
    r"type (filter|nat|route) hook (\w+)"
    r"(?: devices? =? ?(?:\{ ?([^}]*?) ?\}|(\"[^\"]*\"|[^\s;]+)))?"
    r" priority ([^;]+);(?: policy (accept|drop);)?"
)


class _Block(Struct, gc=False):
    """The lines within the braces of a chain, a set or something else."""

    kind: str
    name: str
    handle: int
    lines: list[str]  # without blanks around them; a line that goes on in the next ones is one
    at: Sequence[int]  # number of each, from 0


class _OpenTable(Struct):
    family: str
    name: str
    handle: int
    chains: dict[str, _Block] = {}
    sets: dict[str, _Block] = {}
    others: list[str] = []
    comment: str = ""
    flags: tuple[str, ...] = ()


def read(text: str, origin: Origin = INPUT) -> Reading[v.Ruleset]:
    reader = _Reader(Problems(origin), text.split("\n"))
    reader.read()
    tables: dict[v.TableName, v.Table] = {}
    lines: dict[tuple[str, str], Sequence[int]] = {}
    facts = 0
    for opened in reader.tables.values():
        table = _table(opened)
        tables[v.TableName(table.family, table.name)] = table
        for name, block in opened.chains.items():
            first = _first_rule(block.lines)
            facts += len(block.lines) - first
            at = block.at
            moved = range(at.start + origin.line, at.stop + origin.line) if isinstance(at, range) else None
            lines[f"{table.family} {table.name}", name] = (moved or [n + origin.line for n in at])[first:]
        facts += len(opened.sets)
    return Reading(v.Ruleset(tables), facts, reader.problems.all(), Places(origin.file, lines))


def _table(opened: _OpenTable) -> v.Table:
    family = opened.family
    return v.Table(
        cast(Literal["ip", "ip6", "inet", "arp", "bridge", "netdev"], family),
        opened.name,
        Lazy(opened.chains, lambda name: _chain(opened.chains[name], family)),
        Lazy(opened.sets, lambda name: _set(opened.sets[name])),
        opened.flags,
        opened.comment,
        opened.handle,
        tuple(opened.others),
    )


class _Reader:
    def __init__(self, problems: Problems, lines: list[str]) -> None:
        self.problems = problems
        self.tables: dict[tuple[str, str], _OpenTable] = {}
        self._lines = lines
        self._at = 0

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at].strip()
            found = _TABLE.match(line)
            self._at += 1
            if found is not None:
                table = self._opened(found, self._at - 1)
                if not found[4]:
                    self._body(table)
            elif line and line[0] != "#" and line not in ("flush ruleset", "}"):
                self.problems.unreadable(self._at - 1, line)

    def _opened(self, found: re.Match[str], at: int) -> _OpenTable:
        key = (found[1], found[2])
        if key in self.tables:
            self.problems.add(at, f"table {' '.join(key)} comes a second time: its chains and sets are put together")
        return self.tables.setdefault(key, _OpenTable(found[1], found[2], int(found[3] or 0)))

    def _body(self, table: _OpenTable) -> None:
        begin = self._at - 1
        while self._at < len(self._lines):
            line = self._lines[self._at].strip()
            self._at += 1
            if line == "}":
                return
            if line and line[0] != "#":
                self._member(table, line, self._at - 1)
        self.problems.add(begin, f"table {table.family} {table.name} does not end: its closing brace is missing")

    def _member(self, table: _OpenTable, line: str, at: int) -> None:
        found = _BLOCK.match(line)
        if found is not None and found[1] in ("chain", "set", "map"):
            block = self._block(found, line)
            known = table.chains if block.kind == "chain" else table.sets
            if block.name in known:
                self.problems.add(at, f"{block.kind} {block.name} comes a second time: the first one is kept")
            known.setdefault(block.name, block)
        elif found is not None:
            block = self._block(found, line)
            table.others.append("\n".join((line, *block.lines, *(("}",) if _depth(line) else ()))))
        elif comment := _COMMENT.fullmatch(line):
            table.comment = comment[1]
        elif line.startswith("flags "):
            table.flags = tuple(part.strip() for part in line[6:].rstrip(";").split(","))
        else:
            self.problems.unreadable(at, line)

    def _block(self, head: re.Match[str], line: str) -> _Block:
        """Takes the lines up to the brace that closes this one."""
        found = _Lines(self._at)
        depth, begin = _depth(line), self._at - 1
        while depth > 0:
            if self._at >= len(self._lines):
                self.problems.add(begin, f"{head[1]} {head[2]} does not end: its closing brace is missing")
                break
            text = self._lines[self._at].strip()
            self._at += 1
            within, depth = depth > 1, depth + (_depth(text) if "{" in text or "}" in text else 0)
            if depth <= 0:
                break
            found.take(text, self._at - 1, goes_on=within)
        return _Block(head[1], head[2], int(head[3] or 0), found.joined(), found.numbers())


class _Lines:
    """The lines of a block while they are read. Nearly always they stand one below the other, each for itself."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._lines: list[str] = []
        self._rest: list[str] = []  # further lines of the last one
        self._at: list[int] | None = None  # None: no line was left out so far

    def take(self, text: str, at: int, *, goes_on: bool) -> None:
        if goes_on and self._lines:
            self._rest.append(text)
            return
        self.joined()
        if text:
            if self._at is None and at != self._first + len(self._lines):
                self._at = [*range(self._first, self._first + len(self._lines))]
            self._lines.append(text)
            if self._at is not None:
                self._at.append(at)

    def joined(self) -> list[str]:
        if self._rest:
            self._lines[-1] = " ".join((self._lines[-1], *self._rest))
            self._rest = []
        return self._lines

    def numbers(self) -> Sequence[int]:
        return range(self._first, self._first + len(self._lines)) if self._at is None else self._at


def _depth(text: str) -> int:
    """How many more braces it opens than it closes."""
    if '"' in text:
        text = _QUOTED.sub("", text)
    return text.count("{") - text.count("}")


# --- chains ---------------------------------------------------------------------------------------------------------


def _first_rule(lines: Sequence[str]) -> int:
    """How many lines come before the rules: the hook, the comment."""
    first = 0
    while first < len(lines) and _is_head(lines[first]):
        first += 1
    return first


def _is_head(line: str) -> bool:
    if line[:5] == "type ":
        return _HOOK.match(line) is not None
    return line[:8] == "comment " and _COMMENT.fullmatch(line) is not None


def _chain(block: _Block, family: str) -> v.Chain:
    first = _first_rule(block.lines)
    comment, hook = "", None
    for line in block.lines[:first]:
        if found := _COMMENT.fullmatch(line):
            comment = found[1]
        elif found := _HOOK.match(line):
            hook = _hook(found, family)
    rules = tuple(rule(line) for line in block.lines[first:] if line[0] != "#")
    return v.Chain(block.name, rules, hook, comment, block.handle)


def _hook(found: re.Match[str], family: str) -> v.Hook:
    devices = tuple(part.strip().strip('"') for part in (found[3] or found[4] or "").split(",") if part.strip())
    return v.Hook(
        cast(Literal["filter", "nat", "route"], found[1]),
        found[2],
        priority(found[5], family),
        cast(Literal["accept", "drop"], found[6] or "accept"),
        devices,
    )


_PRIORITY = re.compile(r"(-?\d{1,10})|([a-z]+)(?: ?([+-]) ?(\d{1,10}))?")


def priority(text: str, family: str) -> int:
    """ "dstnat - 10", "filter", "-110"; 0 for names that nobody knows."""
    found = _PRIORITY.fullmatch(text.strip())
    if found is None:
        return 0
    if found[1]:
        return int(found[1])
    named = BRIDGE_PRIORITIES if family == "bridge" else PRIORITIES
    return named.get(found[2], 0) + int(f"{found[3]}{found[4]}" if found[3] else 0)


# --- sets -----------------------------------------------------------------------------------------------------------


def _set(block: _Block) -> v.Set:
    given: dict[str, str] = {}
    more: list[str] = []
    for line in block.lines:
        name, _, rest = line.partition(" ")
        if name in _SET_LINES and name not in given:
            given[name] = rest
        else:
            more.append(line)
    typeof = "typeof" in given
    keys, _, values = (given.get("typeof") or given.get("type") or "").partition(" : ")
    size = given.get("size", "").split("#")[0].split(";")[0].strip()
    return v.Set(
        block.name,
        _types(keys),
        _types(values),
        typeof,
        tuple(flag for flag in given.get("flags", "").rstrip(";").replace(" ", "").split(",") if flag),
        given.get("timeout", "").rstrip(";"),
        int(size) if size.isascii() and size.isdecimal() else 0,
        _elements(given.get("elements", "")),
        given.get("comment", "").strip('"'),
        block.handle,
        tuple(more),
    )


_SET_LINES = frozenset(("type", "typeof", "flags", "timeout", "size", "elements", "comment"))


def _types(text: str) -> tuple[str, ...]:
    return tuple(part.strip().rstrip(";") for part in text.split(" . ")) if text.strip() else ()


def _elements(text: str) -> tuple[v.Element, ...]:
    if not text:
        return ()
    return elements(text[text.find("{") + 1 : text.rfind("}") if "}" in text else len(text)])
