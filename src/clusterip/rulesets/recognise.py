"""A file, whatever it is -> what it holds: every kind of dump, listing, log and manifest.

Recognised by content, in any mixture. What cannot be read is a `Problem` with file and line; nothing is guessed.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from clusterip.rulesets import conntrack, host, ipset, ipvs, klog, manifests, socketmaps
from clusterip.rulesets.evidence import Origin, Places, Problem, Problems, Reading
from clusterip.rulesets.iptables import listing, rulespecs, saved
from clusterip.rulesets.nft import jsontext
from clusterip.rulesets.nft import parse as nft_parse
from clusterip.rulesets.nft import values as nft
from clusterip.rulesets.sections import Kind, Section, decoded, overlong, sections

Values: TypeAlias = (
    saved.Saved
    | nft.Ruleset
    | ipvs.Services
    | ipvs.Connections
    | ipset.IPSets
    | conntrack.Entries
    | conntrack.Statistics
    | host.Interfaces
    | host.Routes
    | host.PolicyRules
    | host.Settings
    | klog.Log
    | klog.Healthz
    | manifests.Manifests
    | socketmaps.SocketMaps
)


class Part(Struct, frozen=True):
    """A section of one kind."""

    kind: Kind
    values: Values
    facts: int  # rules, entries, objects ...: how much it gave
    line: int  # its first line in the file
    places: Places = Places()


class Recognised(Struct, frozen=True):
    name: str  # of the file
    parts: tuple[Part, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def facts(self) -> int:
        return sum(part.facts for part in self.parts)


def read(name: str, data: bytes) -> Recognised:
    """Never raises, whatever the bytes are."""
    text, assumed = decoded(data)
    problems = [Problem(name, 0, assumed)] if assumed else []
    if long := overlong(text):
        return Recognised(name, (), (*problems, Problem(name, long, "the line is longer than any program writes")))
    parts: list[Part] = []
    for section in sections(text):
        part, found = _part(section, Origin(name, section.line))
        if part is not None and (part.facts or not found):
            parts.append(part)
        problems += found
    return Recognised(name, tuple(parts), tuple(problems))


_Reader: TypeAlias = Callable[[str, Origin], Reading[Values]]

_READERS: Mapping[Kind, _Reader] = {
    Kind.IPTABLES_SAVE: saved.read,
    Kind.IPTABLES_RULES: rulespecs.read,
    Kind.IPTABLES_LIST: listing.read,
    Kind.NFT: nft_parse.read,
    Kind.IPVS: ipvs.read,
    Kind.IPVS_CONNECTIONS: ipvs.read_connections,
    Kind.IPSET: ipset.read,
    Kind.CONNTRACK: conntrack.read,
    Kind.CONNTRACK_STATISTICS: conntrack.read_statistics,
    Kind.INTERFACES: host.read_interfaces,
    Kind.ROUTES: host.read_routes,
    Kind.POLICY: host.read_policy,
    Kind.SETTINGS: host.read_settings,
    Kind.LOG: klog.read,
    Kind.MANIFESTS: manifests.read,
}


def _part(section: Section, origin: Origin) -> tuple[Part | None, tuple[Problem, ...]]:
    if section.kind is Kind.JSON:
        return _json(section, origin)
    reader = _READERS.get(section.kind)
    if reader is None:
        return None, _unknown(section, origin)
    return _made(section, section.kind, reader(section.text, origin))


def _made(section: Section, kind: Kind, reading: Reading[Values]) -> tuple[Part, tuple[Problem, ...]]:
    return Part(kind, reading.values, reading.facts, section.line, reading.places), reading.problems


def _unknown(section: Section, origin: Origin) -> tuple[Problem, ...]:
    problems = Problems(origin)
    for number, line in enumerate(section.text.split("\n")):
        if line.strip() and line[0] != "#":
            problems.unreadable(number, line)
    return problems.all()


_LONGEST_FLOW = 1 << 20
_NFTABLES = re.compile(r'\s*\{\s*"nftables"')


def _json(section: Section, origin: Origin) -> tuple[Part | None, tuple[Problem, ...]]:
    if _NFTABLES.match(section.text):
        return _made(section, Kind.NFT_JSON, jsontext.read(section.text, origin))
    try:
        document = msgspec.json.decode(section.text)
    except (msgspec.DecodeError, RecursionError) as error:
        # YAML in its flow style looks alike.
        reading = manifests.read(section.text, origin) if len(section.text) <= _LONGEST_FLOW else None
        if reading is not None and reading.facts:
            return _made(section, Kind.MANIFESTS, reading)
        return None, (Problem(origin.file, section.line, f"JSON: {error}"),)
    if (health := klog.healthz(document)) is not None:
        return Part(Kind.HEALTHZ, health, 1, section.line), ()
    if socketmaps.is_document(document):
        return _made(section, Kind.SOCKET_MAPS, socketmaps.read(document, origin))
    return _made(section, Kind.MANIFESTS, manifests.of_document(document, origin))
