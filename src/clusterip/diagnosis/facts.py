"""All that is known of one node and its cluster: from dumps, from the API, from a live kernel, in any mixture.

None means that it was not given, which is not the same as that there is none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, assert_never

from clusterip.dataplane.ebpf.layout import Contents
from clusterip.model.objects import EndpointSlice, Node, Pod, Service
from clusterip.rulesets.conntrack import Entries, Statistics
from clusterip.rulesets.evidence import Places, Problem
from clusterip.rulesets.host import Interfaces, PolicyRules, Routes, Settings
from clusterip.rulesets.ipset import IPSet, IPSets
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.iptables.values import Ruleset as IptablesRuleset
from clusterip.rulesets.ipvs import Connections as IPVSConnections
from clusterip.rulesets.ipvs import Services as IPVSServices
from clusterip.rulesets.klog import Healthz, Log
from clusterip.rulesets.manifests import Manifest, Manifests
from clusterip.rulesets.nft.values import Ruleset as NftRuleset
from clusterip.rulesets.recognise import Part, Recognised
from clusterip.rulesets.socketmaps import SocketMaps, Stray
from clusterip.services.table import Family

V = TypeVar("V")
NOWHERE = Places()


@dataclass(frozen=True, slots=True)
class Input:
    """One file, or one section of it."""

    file: str
    kind: str  # "iptables-save", "nft list ruleset", "conntrack -L" ...
    facts: int  # rules, entries, objects ...: how much it gave
    line: int = 1  # its first


@dataclass(frozen=True, slots=True)
class IptablesRules:
    """What one iptables variant holds for one family, or the tables of it that one dump gave."""

    ruleset: IptablesRuleset
    variant: Literal["nft", "legacy", ""] = ""  # "": the text does not say
    ipv6: bool = False
    places: Places = NOWHERE
    listed: bool = False  # `iptables -L`, which does not tell all of a rule


@dataclass(frozen=True, slots=True)
class NftRules:
    ruleset: NftRuleset
    places: Places = NOWHERE


@dataclass(frozen=True, slots=True)
class Given:
    """An object of the API, and where it stands."""

    file: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Facts:
    node: str = ""  # its name; "": not known
    iptables: tuple[IptablesRules, ...] = ()
    nft: tuple[NftRules, ...] = ()
    ipvs: IPVSServices | None = None
    ipvs_connections: IPVSConnections | None = None
    ipsets: Mapping[str, IPSet] | None = None
    conntrack: Entries | None = None
    conntrack_statistics: Statistics | None = None
    interfaces: Interfaces | None = None
    routes: Routes | None = None
    policy: PolicyRules | None = None
    settings: Settings = field(default_factory=lambda: Settings({}))
    logs: tuple[tuple[str, Log], ...] = ()  # with the file
    health: tuple[tuple[str, Healthz], ...] = ()
    services: tuple[Service, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    given: tuple[Given, ...] = ()  # every object of a file, of whatever kind
    problems: tuple[Problem, ...] = ()  # what could not be read
    inputs: tuple[Input, ...] = ()
    sockets: Mapping[Family, Contents] | None = None  # the maps of eBPF mode; None: there are none, or not given
    hooks: frozenset[str] | None = None  # where programs that read them run: "connect4"; None: not told
    served_cgroup: str = ""  # whose sockets meet those; "": not told
    strays: tuple[Stray, ...] = ()  # programs at its hooks that are not its own, or not where they should be


def merge(recognised: Iterable[Recognised], node: str = "") -> Facts:
    """All that these files say of one node. An object given twice counts as last given."""
    facts = Facts(node)
    for file in recognised:
        facts = replace(facts, problems=facts.problems + file.problems)
        for part in file.parts:
            told = Input(file.name, str(part.kind), part.facts, part.line)
            facts = replace(_with(facts, file.name, part), inputs=(*facts.inputs, told))
    return _with_objects(facts)


def _with(facts: Facts, file: str, part: Part) -> Facts:
    match part.values:
        case Saved(ruleset=ruleset, family=family, variant=variant, told_by=told_by):
            rules = IptablesRules(ruleset, variant, family == "ip6", part.places, told_by == "listing")
            return replace(facts, iptables=(*facts.iptables, rules))
        case NftRuleset() as ruleset:
            return replace(facts, nft=(*facts.nft, NftRules(ruleset, part.places)))
        case IPVSServices(services):
            before = facts.ipvs.services if facts.ipvs else ()
            return replace(facts, ipvs=IPVSServices(before + services))
        case IPVSConnections(connections):
            known = facts.ipvs_connections.connections if facts.ipvs_connections else ()
            return replace(facts, ipvs_connections=IPVSConnections(known + connections))
        case IPSets(sets):
            return replace(facts, ipsets={**(facts.ipsets or {}), **sets})
        case Entries(entries):
            earlier = facts.conntrack.entries if facts.conntrack else ()
            return replace(facts, conntrack=Entries(earlier + entries))
        case Statistics():
            return replace(facts, conntrack_statistics=part.values)
        case Log():
            return replace(facts, logs=(*facts.logs, (file, part.values)))
        case Healthz():
            return replace(facts, health=(*facts.health, (file, part.values)))
        case SocketMaps(hooks=hooks, cgroup=cgroup, strays=strays):
            from clusterip.dataplane.ebpf.document import contents  # few have such maps, and it brings a compiler along

            told = None if hooks is None else frozenset(hooks)
            return replace(facts, sockets=contents(part.values), hooks=told, served_cgroup=cgroup, strays=strays)
        case Manifests(manifests):
            return replace(facts, given=(*facts.given, *(Given(file, m) for m in manifests)))
        case _:
            return _with_host(facts, part.values)


def _with_host(facts: Facts, values: Interfaces | Routes | PolicyRules | Settings) -> Facts:
    match values:
        case Interfaces(interfaces):
            known = facts.interfaces.interfaces if facts.interfaces else ()
            return replace(facts, interfaces=Interfaces(known + interfaces))
        case Routes(routes):
            before = facts.routes.routes if facts.routes else ()
            return replace(facts, routes=Routes(before + routes))
        case PolicyRules(rules):
            earlier = facts.policy.rules if facts.policy else ()
            return replace(facts, policy=PolicyRules(earlier + rules))
        case Settings(read, lines):
            one = facts.settings
            return replace(facts, settings=Settings({**one.values, **read}, {**one.lines, **lines}))
        case _:
            assert_never(values)


def _with_objects(facts: Facts) -> Facts:
    """The objects of files among the others."""
    values = [given.manifest.value for given in facts.given]
    return replace(
        facts,
        services=_last({(v.metadata.namespace, v.metadata.name): v for v in values if isinstance(v, Service)}),
        slices=_last({(v.metadata.namespace, v.metadata.name): v for v in values if isinstance(v, EndpointSlice)}),
        pods=_last({(v.metadata.namespace, v.metadata.name): v for v in values if isinstance(v, Pod)}),
        nodes=_last({("", v.metadata.name): v for v in values if isinstance(v, Node)}),
    )


def _last(objects: Mapping[tuple[str, str], V]) -> tuple[V, ...]:
    return tuple(objects.values())
