"""Logs as values: klog's text and its JSON, and this product's events, as the program wrote them or with what journald
or a container runtime puts before each line; lines "WARN: ..."; and the reply of kube-proxy's /healthz.

What kube-proxy means by its lines is read in `proxylog`.
"""

import re
from collections.abc import Mapping
from typing import Literal, cast

import msgspec
from msgspec import Struct, structs

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading

Level = Literal["I", "W", "E", "F"]


class Entry(Struct, frozen=True):
    level: Level
    time: str  # "": not said; as written: "1106 22:08:09.857720"; JSON: seconds since 1970
    source: str  # "": not said; "proxier.go:1851"
    message: str  # without quotes and fields
    fields: Mapping[str, str] = {}  # structured logging: "ipFamily": "IPv4"
    body: tuple[str, ...] = ()  # the lines that follow and begin no entry
    line: int = 0

    @property
    def whole(self) -> str:
        """All that it says, for whoever looks for a phrase."""
        return "\n".join((self.message, *self.fields.values(), *self.body))


class Log(Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    before: tuple[str, ...] = ()  # lines before the first entry: the end of one that was cut off


class Healthz(Struct, frozen=True):
    """Of port 10256. It says that kube-proxy runs, not that its rules are in the kernel."""

    last_updated: str
    current_time: str
    node_eligible: bool | None = None  # None: an older kube-proxy does not say


# The line may have a prefix: "Nov 30 13:00:00 node-1 kube-proxy[12]: ", "2026-11-30T13:00:00.1Z stderr F ".
_HEAD = re.compile(
    r"(?:.{0,160}?[ \]:])?"
    r"([IWEF])(\d{4} \d\d:\d\d:\d\d\.\d{1,9}) +\d+ ([^\s\]]{1,200}:\d+)\] ?(.*)"
)
# Of `clusterip proxy`: an event of ours and its fields, behind the time and level of Python's logging.
_EVENT_HEAD = re.compile(
    r"(?:.{0,160}?[ \]:])?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) "
    r"(I|W|E|C|INFO|WARNING|ERROR|CRITICAL) ([a-z_]+(?:\.[a-z_]+)+)(.*)"
)
_EVENT_LEVELS: Mapping[str, Level] = {"I": "I", "W": "W", "E": "E", "C": "F"}
_PLAIN_HEAD = re.compile(r"(INFO|WARN|ERRO|FATA|ERROR|FATAL|WARNING): (.*)")  # of programs that do not use klog
_JSON_HEAD = re.compile(r'(?:[^{"]{0,160})?(\{"ts":.*\})\s*')
# key="value", key='value' (ours), key=word, key=<; values in double quotes follow Go's rules.
_FIELD = re.compile(
    r""" ([A-Za-z_][\w./-]*)=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\[[^\]]{0,4096}\]|\{[^}]{0,4096}\}|\S+)"""
)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_MOST_LINE = 65536  # longer lines are no log


def read(text: str, origin: Origin = INPUT) -> Reading[Log]:
    problems = Problems(origin)
    entries: list[Entry] = []
    bodies: list[list[str]] = []
    before: list[str] = []
    for number, line in enumerate(text.split("\n")):
        entry = _entry(line, origin.line + number)
        if entry is not None:
            entries.append(entry)
            bodies.append([])
        elif line.strip():
            (bodies[-1] if bodies else before).append(line)
    found = tuple(structs.replace(e, body=tuple(b)) if b else e for e, b in zip(entries, bodies, strict=True))
    return Reading(Log(found, tuple(before)), len(found), problems.all())


def _entry(line: str, at: int) -> Entry | None:
    if len(line) > _MOST_LINE:
        return None
    if matched := _HEAD.match(line):
        message, fields = _structured(matched[4])
        return Entry(cast(Level, matched[1]), matched[2], matched[3], message, fields, line=at)
    if matched := _EVENT_HEAD.fullmatch(line):
        fields = {f[1]: _unquoted(f[2]) for f in _FIELD.finditer(matched[4])}
        return Entry(_EVENT_LEVELS[matched[2][0]], matched[1], "", matched[3], fields, line=at)
    if matched := _JSON_HEAD.fullmatch(line):
        return _json_entry(matched[1], at)
    if matched := _PLAIN_HEAD.fullmatch(line):
        return Entry(cast(Level, matched[1][0]), "", "", matched[2], line=at)
    return None


def _structured(text: str) -> tuple[str, dict[str, str]]:
    """'"Sync failed" ipFamily="IPv4"' -> ("Sync failed", {"ipFamily": "IPv4"}); other text is a message as a whole."""
    matched = _QUOTED.match(text)
    if matched is None:
        return text, {}
    return _unquoted(matched[0]), {f[1]: _unquoted(f[2]) for f in _FIELD.finditer(text, matched.end())}


def _unquoted(text: str) -> str:
    if text[:1] == "'":
        return text[1:-1].replace("\\'", "'")
    if text[:1] != '"':
        return "" if text == "<" else text  # "<": the value is in the body
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return text[1:-1]


def _json_entry(text: str, at: int) -> Entry | None:
    try:
        given = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return None
    message = given.pop("msg", "")
    time = given.pop("ts", "")
    source = given.pop("caller", "")
    given.pop("v", None)
    level: Level = "E" if "err" in given or given.get("level") == "error" else "I"
    return Entry(level, str(time), str(source), str(message), {k: _shown(v) for k, v in given.items()}, line=at)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _Reply(Struct, frozen=True):
    lastUpdated: str
    currentTime: str = ""
    nodeEligible: bool | None = None


def healthz(document: object) -> Healthz | None:
    """Of the decoded reply; None: it is none."""
    try:
        reply = msgspec.convert(document, _Reply)
    except msgspec.ValidationError:
        return None
    return Healthz(reply.lastUpdated, reply.currentTime, reply.nodeEligible)
