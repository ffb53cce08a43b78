"""The connection table as values: `conntrack -L` (plain, `-o extended`, `-o timestamp`), /proc/net/nf_conntrack,
events of `conntrack -E`, and the counters of `conntrack -S`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered


class Flow(Struct, frozen=True, gc=False):
    """One direction of a connection: the addresses as packets of this direction have them."""

    source: str
    destination: str
    source_port: int = 0
    destination_port: int = 0
    icmp: tuple[int, ...] | None = None  # type, code, id
    packets: int | None = None  # None: accounting is off
    bytes: int | None = None
    zone: int = 0


class Entry(Struct, frozen=True, gc=False):
    protocol: str  # "tcp", "udp", "icmp", "unknown"
    number: int  # of the protocol: 6, 17, 1
    original: Flow
    reply: Flow
    timeout: int | None = None  # seconds; None: it is offloaded, or this is an event
    state: str = ""  # of TCP and SCTP: "SYN_SENT", "ESTABLISHED", "CLOSE_WAIT"
    flags: tuple[str, ...] = ()  # "UNREPLIED", "ASSURED", "OFFLOAD"
    mark: int = 0
    zone: int = 0
    family: Literal["ipv4", "ipv6", ""] = ""  # "": plain output does not say; the addresses do
    event: Literal["NEW", "UPDATE", "DESTROY", ""] = ""
    more: tuple[str, ...] = ()  # "use=1", "helper=ftp", "secctx=..."
    line: int = 0

    @property
    def unreplied(self) -> bool:
        return "UNREPLIED" in self.flags

    @property
    def translated(self) -> bool:
        """Whether NAT rewrote it: the answer does not come from where the question went, or not to who asked."""
        one, two = self.original, self.reply
        return (one.source, one.source_port, one.destination, one.destination_port) != (
            two.destination,
            two.destination_port,
            two.source,
            two.source_port,
        )


class Entries(Struct, frozen=True):
    entries: tuple[Entry, ...] = ()


class Counters(Struct, frozen=True):
    """Of one processor: "found", "insert_failed", "drop", "search_restart" ..."""

    cpu: int
    values: Mapping[str, int]
    line: int = 0


class Statistics(Struct, frozen=True):
    cpus: tuple[Counters, ...] = ()

    def total(self, name: str) -> int:
        return sum(cpu.values.get(name, 0) for cpu in self.cpus)


SUMMARY = re.compile(r"conntrack v[\d.]+ \(conntrack-tools\)")
_EVENT = re.compile(r"\s*(?:\[\d+\.\d+\]\s*)?\[(NEW|UPDATE|DESTROY)\]\s+")
_STAMP = re.compile(r"\s*\[[\d.]+\s*\]\s+")
_FAMILIES = frozenset({"ipv4", "ipv6"})


def read(text: str, origin: Origin = INPUT) -> Reading[Entries]:
    problems = Problems(origin)
    found: list[Entry] = []
    for number, line in numbered(text.split("\n")):
        if SUMMARY.match(line):
            continue
        entry = _entry(line, origin.line + number)
        if entry is None:
            problems.unreadable(number, line)
        else:
            found.append(entry)
    return Reading(Entries(tuple(found)), len(found), problems.all())


def _entry(line: str, number: int) -> Entry | None:
    event: str = ""
    if matched := _EVENT.match(line):
        event, line = matched[1], line[matched.end() :]
    elif matched := _STAMP.match(line):
        line = line[matched.end() :]
    words = line.split()
    family = ""
    if words and words[0] in _FAMILIES:
        family, words = words[0], words[2:]
    first = next((i for i, word in enumerate(words) if word.startswith("src=")), 0)
    if first < 2 or not _is_number(words[1]):
        return None
    head = words[2:first]
    timeout = int(head.pop(0)) if head and _is_number(head[0]) else None
    states = [word for word in head if word[0] != "["]
    body = _body(words[first:])
    if body is None or len(states) > 1:
        return None
    original, reply, flags, rest = body
    flags = (*(word.strip("[]") for word in head if word[0] == "["), *flags)
    zone = rest.pop("zone", "0")
    mark = rest.pop("mark", "0")
    if not (_is_number(zone) and _is_mark(mark)):
        return None
    return Entry(
        *(words[0], int(words[1]), original, reply, timeout, states[0] if states else "", flags),
        *(int(mark, 16 if mark[1:2] == "x" else 10), int(zone)),
        family,  # type: ignore[arg-type]
        event,  # type: ignore[arg-type]
        tuple(f"{name}={value}" for name, value in rest.items()),
        number,
    )


def _body(words: Sequence[str]) -> tuple[Flow, Flow, tuple[str, ...], dict[str, str]] | None:
    """Both directions, the flags, and what is said of the connection itself."""
    flows: list[dict[str, str]] = []
    flags: list[str] = []
    rest: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            if word[0] == "[" and word[-1] == "]":
                flags.append(word[1:-1])
                continue
            return None
        if name == "src":
            flows.append({})
        current = flows[-1] if flows else rest
        if name in _OF_A_FLOW and name not in current:
            current[name] = value
        else:
            rest[name] = value
    if len(flows) != 2:
        return None
    original, reply = _flow(flows[0]), _flow(flows[1])
    if original is None or reply is None:
        return None
    return original, reply, tuple(flags), rest


_NUMBERS = ("sport", "dport", "type", "code", "id", "packets", "bytes", "zone-orig", "zone-reply")
_OF_A_FLOW = frozenset({"src", "dst", *_NUMBERS})


def _flow(given: Mapping[str, str]) -> Flow | None:
    if "dst" not in given or not _is_number("".join(given.get(name, "") for name in _NUMBERS) or "0", most=100):
        return None
    return Flow(
        *(given["src"], given["dst"], int(given.get("sport") or 0), int(given.get("dport") or 0)),
        tuple(int(given.get(name) or 0) for name in ("type", "code", "id")) if "type" in given else None,
        int(given["packets"] or 0) if "packets" in given else None,
        int(given["bytes"] or 0) if "bytes" in given else None,
        int(given.get("zone-orig") or given.get("zone-reply") or 0),
    )


def read_statistics(text: str, origin: Origin = INPUT) -> Reading[Statistics]:
    problems = Problems(origin)
    found: list[Counters] = []
    for number, line in numbered(text.split("\n")):
        pairs = [word.partition("=")[::2] for word in line.split()]
        if not pairs or pairs[0][0] != "cpu" or not all(_is_number(value) for _, value in pairs):
            problems.unreadable(number, line)
            continue
        found.append(Counters(int(pairs[0][1]), {k: int(v) for k, v in pairs[1:]}, origin.line + number))
    return Reading(Statistics(tuple(found)), len(found), problems.all())


def _is_number(text: str, most: int = 20) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < most


def _is_mark(text: str) -> bool:
    return _is_number(text) or re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text) is not None
