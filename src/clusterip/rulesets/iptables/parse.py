"""Text, as `iptables-save` prints it or as people write it for `iptables-restore` -> values.

Modules that are known but say something unknown become `OtherMatch` as a whole. Only what cannot be a rule at all is
refused.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from clusterip.errors import BadInput
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.matches import PORT_OPTIONS, PORT_PROTOCOLS, read_match
from clusterip.rulesets.iptables.options import options_of
from clusterip.rulesets.iptables.targets import EXTENSIONS, read_target


class BadRuleset(BadInput):
    """The text is no set of rules."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(
            f"iptables rules: line {line}: {why}",
            hint="give what iptables-save printed, from the first line to the last",
        )
        self.line = line


class _Unreadable(Exception):
    """A rule's words make no rule; the caller knows the line."""


BUILT_IN = frozenset({"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"})  # need no declaration

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ESCAPED = re.compile(r"\\(.)")
_COUNTERS = re.compile(r"\[(\d+):(\d+)\]")

_BASE: dict[str, Callable[[str, bool], v.Match]] = {}
for _make, _spellings in (
    (v.Source, "-s --source --src"),
    (v.Destination, "-d --destination --dst"),
    (v.InInterface, "-i --in-interface"),
    (v.OutInterface, "-o --out-interface"),
    (v.IPProtocol, "-p --protocol --proto"),
):
    for _spelling in _spellings.split():
        _BASE[_spelling] = _make


def parse(text: str) -> v.Ruleset:
    """Tables and chains in the order of the text. A table that comes twice is one table. Raises BadRuleset."""
    tables: dict[str, _Open] = {}
    table: _Open | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line[0] == "#" or line.isspace():
            continue
        if line[0] == "*":
            table = tables.setdefault(line[1:].strip(), _Open({}, {}))
        elif table is None:
            raise BadRuleset(number, "it stands in no table: a line like *nat comes first")
        elif line.rstrip() == "COMMIT":
            table = None
        else:
            _take(table, line, number)
    if table is not None:
        raise BadRuleset(text.count("\n") + 1, "the text ends within a table: COMMIT is missing")
    return v.Ruleset({name: v.Table(name, opened.close()) for name, opened in tables.items()})


def parse_rule(spec: str) -> v.Rule:
    """What follows "-A <chain> ". Raises BadRuleset, of line 1."""
    try:
        return _rule(words(spec), None)
    except _Unreadable as error:
        raise BadRuleset(1, f"{error}: {spec}") from error


class _Open(NamedTuple):
    """A table while its lines are read."""

    chains: dict[str, v.Chain]
    rules: dict[str, list[v.Rule]]

    def close(self) -> dict[str, v.Chain]:
        return {name: v.Chain(name, tuple(self.rules[name]), c.policy, c.counters) for name, c in self.chains.items()}


def _take(table: _Open, line: str, number: int) -> None:
    if line[0] == ":":
        chain = read_chain(line)
        if chain is None:
            raise BadRuleset(number, f'{line!r} is not like ":KUBE-SERVICES - [0:0]"')
        table.chains[chain.name] = chain
        table.rules.setdefault(chain.name, [])
        return
    counters = None
    if line[0] == "[":
        counters, line = read_counters(line)
    command, _, rest = line.lstrip().partition(" ")
    name, _, spec = rest.partition(" ")
    if command not in ("-A", "--append"):
        raise BadRuleset(number, f"{command} is no part of a saved ruleset")
    rules = table.rules.get(name)
    if rules is None:
        if name not in BUILT_IN:
            raise BadRuleset(number, f"chain {name!r} is not declared before its rules")
        table.chains[name] = v.Chain(name, (), "ACCEPT")
        rules = table.rules[name] = []
    try:
        rules.append(_rule(words(spec), counters))
    except _Unreadable as error:
        raise BadRuleset(number, f"{error}: {line}") from error


def read_chain(line: str) -> v.Chain | None:
    """ ":KUBE-SERVICES - [0:0]"; None: it is not like that."""
    parts = line[1:].split()
    if len(parts) == 2:
        parts.append("[0:0]")
    counters = _COUNTERS.fullmatch(parts[2]) if len(parts) == 3 else None
    if counters is None:
        return None
    return v.Chain(parts[0], (), parts[1], v.Counters(int(counters[1]), int(counters[2])))


def read_counters(line: str) -> tuple[v.Counters | None, str]:
    """ "[12:720] -A ..." -> the counters, and the rest."""
    found = _COUNTERS.match(line)
    if found is None:
        return None, line
    return v.Counters(int(found[1]), int(found[2])), line[found.end() :].lstrip()


def words(text: str) -> list[str]:
    """Split at blanks; double quotes keep a word together, a backslash within them keeps the next character."""
    if '"' not in text:
        return text.split()
    return [bare or _ESCAPED.sub(r"\1", inner) for inner, bare in _QUOTED.findall(text)]


def _rule(given: Sequence[str], counters: v.Counters | None) -> v.Rule:
    """Options are taken to belong to the module last named, ports to their protocol, wherever they stand."""
    matches: list[v.Match] = []
    modules: list[tuple[int, str, list[str]]] = []  # where in `matches`, name, words
    target: tuple[str, str, list[str]] | None = None
    current: list[str] | None = None
    module = ""
    negated = False
    rest = iter(given)
    try:
        for word in rest:
            if word in _BASE:
                matches.append(_BASE[word](next(rest), negated))
                negated = False
            elif word in ("-m", "--match"):
                module, current = next(rest), []
                modules.append((len(matches), module, current))
                matches.append(_PENDING)
            elif word in ("-j", "-g", "--jump", "--goto"):
                module, current = "", []
                target = ("g" if word in ("-g", "--goto") else "j", next(rest), current)
            elif word == "!":
                negated = True
            elif word == "--comment" and current is not None and module == "comment":
                current += (word, next(rest))  # whatever it says: "!" and "-j" are words here
            else:
                if current is None or (word in PORT_OPTIONS and module not in PORT_PROTOCOLS):
                    module, current = _implied(matches), []
                    modules.append((len(matches), module, current))
                    matches.append(_PENDING)
                current += ("!", word) if negated else (word,)
                negated = False
    except StopIteration:
        raise _Unreadable(f"nothing follows {given[-1]}") from None
    if negated:
        raise _Unreadable("nothing follows !")
    for place, name, options in modules:
        if name == "comment" and len(options) == 2 and options[0] == "--comment":
            matches[place] = v.Comment(options[1])  # seldom the same twice, so not worth remembering
        else:
            matches[place] = _match(name, tuple(options))
    return v.Rule(tuple(matches), _target(*target) if target else None, counters)


_PENDING = v.OtherMatch("")


def _implied(matches: Sequence[v.Match]) -> str:
    """The module of options that stand before any -m: `-p tcp` brings its own."""
    protocol = next((m.name for m in matches if isinstance(m, v.IPProtocol)), "")
    return protocol if protocol in PORT_PROTOCOLS else ""


@lru_cache(maxsize=1 << 14)
def _match(module: str, given: tuple[str, ...]) -> v.Match:
    return read_match(module, options_of(given))


def _target(how: str, name: str, given: list[str]) -> v.Target:
    if how == "g":
        return v.Goto(name) if not given else v.OtherTarget(name, tuple(given))
    if not given and name not in EXTENSIONS:
        return v.Jump(name)
    return read_target(name, options_of(given)) or v.OtherTarget(name, tuple(given))
