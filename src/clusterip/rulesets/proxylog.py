"""What kube-proxy means by the lines of its log, over the versions that changed the wording; and our own proxy."""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from clusterip.rulesets.klog import Entry, Log


class SyncFailed(Struct, frozen=True):
    """A batch that the kernel refused; kube-proxy tries again, and until then old rules stay."""

    program: str  # "iptables-restore", "nft", "ipset", ...; "": not said
    why: str
    lines: tuple[int, ...]  # of the batch, where it was refused
    chains: tuple[str, ...]  # that the refusal names
    locked: bool  # somebody else held the xtables lock
    line: int
    time: str


class SyncTook(Struct, frozen=True):
    seconds: float
    family: str  # "IPv4", "IPv6"; "": not said
    line: int
    time: str


class Reloading(Struct, frozen=True):
    services: int
    endpoints: int
    family: str
    line: int
    time: str


class ModeChosen(Struct, frozen=True):
    mode: str  # "iptables", "ipvs", "nftables", "userspace"
    line: int


class NodeNotFound(Struct, frozen=True):
    """kube-proxy's name for its node is none that the API has: what is local is not told from what is not."""

    node: str
    line: int


class NodeAddress(Struct, frozen=True):
    address: str
    line: int


class NoClusterCIDR(Struct, frozen=True):
    """kube-proxy cannot tell pods from others, so it masquerades nothing for that reason."""

    line: int


class Flag(Struct, frozen=True):
    """A command-line flag as kube-proxy prints it at start."""

    name: str  # without dashes
    value: str
    line: int


class Stopped(Struct, frozen=True):
    why: str
    line: int


Event: TypeAlias = (
    SyncFailed | SyncTook | Reloading | ModeChosen | NodeNotFound | NodeAddress | NoClusterCIDR | Flag | Stopped
)


def events(log: Log) -> tuple[Event, ...]:
    """What the entries mean, in their order. Entries that mean nothing here give nothing."""
    return tuple(event for entry in log.entries for event in _events(entry))


def _events(entry: Entry) -> Iterator[Event]:
    whole = entry.whole
    for phrase, make in _MEANINGS:
        if found := phrase.search(whole):
            event = make(entry, found, whole)
            if event is not None:
                yield event
            return


_LOCKED = re.compile(r"(?i)holding the xtables lock|xtables\.lock|can't grab the lock")
_AT_LINE = re.compile(r"(?:Error occurred at line:|\bline) (\d{1,9})\b|/dev/stdin:(\d{1,9}):")
_CHAIN = re.compile(r"(?i)chain '([^'\s]+)' does not exist")
_PROGRAM = re.compile(r"(ip6?tables(?:-legacy|-nft)?-restore|ipset(?: restore)?|nftables|nft)\b")
_WORDS = re.compile(r"\s+")


def _sync_failed(entry: Entry, _: re.Match[str], whole: str) -> Event:
    program = _PROGRAM.search(whole)
    name = program[1] if program else ""
    lines = [int(next(filter(None, found))) for found in _AT_LINE.findall(whole)]
    why = _WORDS.sub(
        " ", " ".join((entry.message, entry.fields.get("err", ""), entry.fields.get("error", ""), *entry.body))
    ).strip()
    return SyncFailed(
        "nft" if name == "nftables" else name,
        why,
        tuple(dict.fromkeys(lines)),
        tuple(dict.fromkeys(_CHAIN.findall(whole))),
        _LOCKED.search(whole) is not None,
        entry.line,
        entry.time,
    )


def _took(entry: Entry, found: re.Match[str], whole: str) -> Event | None:
    seconds = duration(entry.fields.get("elapsed") or (found[1] if found.re.groups else "") or "")
    return None if seconds is None else SyncTook(seconds, entry.fields.get("ipFamily", ""), entry.line, entry.time)


def _reloading(entry: Entry, _: re.Match[str], whole: str) -> Event | None:
    counts = [entry.fields.get(name, "") for name in ("numServices", "numEndpoints")]
    if not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in counts):
        return None
    services, endpoints = map(int, counts)
    return Reloading(services, endpoints, entry.fields.get("ipFamily", ""), entry.line, entry.time)


_FAILED = re.compile(
    r"Failed to execute ip6?tables-restore|nftables sync failed|Failed to execute ipset|"
    r"Failed to (?:sync|restore) (?:ip6?tables|ipset)|ip6?tables-restore.{0,80}failed"
)
_TOOK = re.compile(r"(?i)syncProxyRules (?:complete|took)(?: ([\d.]\S*))?")
_RELOADING = re.compile(r"Reloading service (?:iptables|nftables|ipvs) data")
_USING = re.compile(r"Using (iptables|ipvs|nftables|userspace) [Pp]rox")
_NO_NODE = re.compile(r'nodes "([^"]+)" not found')
_NODE_ADDRESS = re.compile(r"Successfully retrieved node IP[^\d\[]*\[?\"?([\da-fA-F.:]+)")
_NO_CIDR = re.compile(r"(?i)clusterCIDR not specified|no cluster CIDR defined|Defaulting to no-op detect-local")
_FLAG = re.compile(r'FLAG: --([\w-]+)="(.*)"')
_STOPPED = re.compile(
    r"Error running ProxyServer|command failed|unable to create proxier|can't run (?:iptables|nftables|ipvs)"
)

# Our own proxy's events.
_OWN_FAILED = re.compile(r"^proxy\.sync\.failed\b")
_OWN_DONE = re.compile(r"^proxy\.sync\.done\b")
_OWN_NO_NODE = re.compile(r"^proxy\.node\.unknown\b")
_OWN_NO_DETECTOR = re.compile(r"^proxy\.detector\.absent\b")


def _own_done(entry: Entry, _: re.Match[str], __: str) -> Event | None:
    took = duration(f"{entry.fields.get('ms', '')}ms")
    return None if took is None else SyncTook(took, entry.fields.get("family", ""), entry.line, entry.time)


_Meaning: TypeAlias = Callable[[Entry, re.Match[str], str], Event | None]
_MEANINGS: tuple[tuple[re.Pattern[str], _Meaning], ...] = (
    (_OWN_FAILED, _sync_failed),
    (_OWN_DONE, _own_done),
    (_OWN_NO_NODE, lambda entry, _found, _: NodeNotFound(entry.fields.get("node", ""), entry.line)),
    (_OWN_NO_DETECTOR, lambda entry, _found, _: NoClusterCIDR(entry.line)),
    (_FAILED, _sync_failed),
    (_LOCKED, _sync_failed),
    (_TOOK, _took),
    (_RELOADING, _reloading),
    (_USING, lambda entry, found, _: ModeChosen(found[1], entry.line)),
    (_NO_NODE, lambda entry, found, _: NodeNotFound(found[1], entry.line)),
    (_NODE_ADDRESS, lambda entry, found, _: NodeAddress(found[1], entry.line)),
    (_NO_CIDR, lambda entry, _found, _: NoClusterCIDR(entry.line)),
    (_FLAG, lambda entry, found, _: Flag(found[1], found[2], entry.line)),
    (_STOPPED, lambda entry, _found, whole: Stopped(_WORDS.sub(" ", whole).strip(), entry.line)),
)

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(s|ms|[µμu]s|ns))?")
_UNITS = {"s": 1.0, "ms": 1e-3, "ns": 1e-9}


def duration(text: str) -> float | None:
    """Seconds of a duration as Go prints it: "13m15.34s", "350.2ms"; None: it is none."""
    found = _DURATION.fullmatch(text[:64])
    if found is None or not text:
        return None
    hours, minutes, rest, unit = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0) * _UNITS.get(unit or "s", 1e-6)
