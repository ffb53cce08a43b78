"""Everything that was given, by what it is about, each with the file and line it came from. Pure.

Unlike the facts that a walk needs, nothing is merged: what two nodes, or two iptables variants, say of one Service
stays apart, because that they differ is what a diagnosis looks for.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from clusterip.diagnosis.doctor.proxies import EITHER, Proxy
from clusterip.diagnosis.findings import Evidence
from clusterip.model import objects as o
from clusterip.rulesets import host, klog
from clusterip.rulesets.conntrack import Entries, Statistics
from clusterip.rulesets.evidence import Places, Problem
from clusterip.rulesets.ipset import IPSets
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.ipvs import Connections as IPVSConnections
from clusterip.rulesets.ipvs import Services as IPVSServices
from clusterip.rulesets.manifests import Manifest, Manifests
from clusterip.rulesets.nft.values import Ruleset as NftRuleset
from clusterip.rulesets.recognise import Recognised
from clusterip.rulesets.socketmaps import SocketMaps
from clusterip.services.resolve import SERVICE_NAME_LABEL

T = TypeVar("T")
V = TypeVar("V", bound=o.Value)


NOWHERE = Places()


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T]):
    """Values of one kind, and the file, or section of a file, that gave them."""

    values: T
    file: str = ""
    places: Places = NOWHERE

    def at(self, line: int, text: str) -> Evidence:
        return Evidence(text, self.file, line)

    def rule(self, table: str, chain: str, number: int, text: str) -> Evidence:
        """Rule `number` (from 0) of a chain."""
        return Evidence(text, self.file, self.places.line(table, chain, number))


class Key(NamedTuple):
    """An object of some kind by its name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Known:
    """Where nothing of a kind was given its collection is empty, which is not the same as that there is none."""

    node: str = ""  # whose view is asked for; "": not said
    iptables: tuple[Sourced[Saved], ...] = ()
    nft: tuple[Sourced[NftRuleset], ...] = ()
    ipvs: tuple[Sourced[IPVSServices], ...] = ()
    ipvs_connections: tuple[Sourced[IPVSConnections], ...] = ()
    ipsets: tuple[Sourced[IPSets], ...] = ()
    sockets: tuple[Sourced[SocketMaps], ...] = ()
    conntrack: tuple[Sourced[Entries], ...] = ()
    statistics: tuple[Sourced[Statistics], ...] = ()
    settings: tuple[Sourced[host.Settings], ...] = ()
    interfaces: tuple[Sourced[host.Interfaces], ...] = ()
    routes: tuple[Sourced[host.Routes], ...] = ()
    logs: tuple[Sourced[klog.Log], ...] = ()
    healthz: tuple[Sourced[klog.Healthz], ...] = ()
    services: Mapping[Key, o.Service] = field(default_factory=dict)
    slices: tuple[o.EndpointSlice, ...] = ()
    slices_of: Mapping[Key, tuple[o.EndpointSlice, ...]] = field(
        default_factory=dict
    )  # by their Service, as their label names it
    endpoints: Mapping[Key, o.Endpoints] = field(default_factory=dict)
    pods: tuple[o.Pod, ...] = ()
    nodes: Mapping[str, o.Node] = field(default_factory=dict)
    documents: tuple[Sourced[Manifest], ...] = ()  # every object given, those of other kinds too
    objects_at: Mapping[tuple[str, Key], Evidence] = field(default_factory=dict)  # (kind, name) -> where it stands
    problems: tuple[Problem, ...] = ()  # what could not be read
    proxy: Proxy = EITHER  # that keeps the rules, as far as the input tells

    def evidence(self, kind: str, name: Key, text: str) -> Evidence:
        """What an object says: a field and its value."""
        place = self.objects_at.get((kind, name))
        return Evidence(text, place.file, place.line) if place else Evidence(text)

    def of_kind(self, kind: str) -> Iterator[Sourced[Manifest]]:
        return (d for d in self.documents if d.values.kind == kind)

    @property
    def holds_rules(self) -> bool:
        return bool(self.iptables or self.nft or self.ipvs)


def known(inputs: Iterable[Recognised], node: str = "") -> Known:
    """An object given twice counts as last given."""
    kinds: dict[type, list[Sourced[object]]] = defaultdict(list)
    problems: list[Problem] = []
    for given in inputs:
        problems += given.problems
        for part in given.parts:
            kinds[type(part.values)].append(Sourced(part.values, given.name, part.places))

    def all_of(kind: type[T]) -> tuple[Sourced[T], ...]:
        return tuple(Sourced(g.values, g.file, g.places) for g in kinds[kind] if isinstance(g.values, kind))

    documents = tuple(Sourced(m, g.file) for g in all_of(Manifests) for m in g.values.manifests)
    slices = tuple(_latest(documents, o.EndpointSlice).values())
    return Known(
        node=node,
        iptables=all_of(Saved),
        nft=all_of(NftRuleset),
        ipvs=all_of(IPVSServices),
        ipvs_connections=all_of(IPVSConnections),
        ipsets=all_of(IPSets),
        sockets=all_of(SocketMaps),
        conntrack=all_of(Entries),
        statistics=all_of(Statistics),
        settings=all_of(host.Settings),
        interfaces=all_of(host.Interfaces),
        routes=all_of(host.Routes),
        logs=all_of(klog.Log),
        healthz=all_of(klog.Healthz),
        services=_latest(documents, o.Service),
        slices=slices,
        slices_of=_by_service(slices),
        endpoints=_latest(documents, o.Endpoints),
        pods=tuple(_latest(documents, o.Pod).values()),
        nodes={key.name: found for key, found in _latest(documents, o.Node).items()},
        documents=documents,
        problems=tuple(problems),
        objects_at={
            (d.values.kind, Key(d.values.namespace, d.values.name)): d.at(d.values.line, "") for d in documents
        },
    )


def _latest(documents: Iterable[Sourced[Manifest]], kind: type[V]) -> dict[Key, V]:
    return {
        Key(d.values.namespace, d.values.name): d.values.value for d in documents if isinstance(d.values.value, kind)
    }


def _by_service(slices: Iterable[o.EndpointSlice]) -> dict[Key, tuple[o.EndpointSlice, ...]]:
    found: dict[Key, list[o.EndpointSlice]] = defaultdict(list)
    for s in slices:
        if name := s.metadata.labels.get(SERVICE_NAME_LABEL):
            found[Key(s.metadata.namespace, name)].append(s)
    return {key: tuple(several) for key, several in found.items()}


def key_of(value: o.Service | o.EndpointSlice | o.Pod | o.Endpoints) -> Key:
    return Key(value.metadata.namespace, value.metadata.name)
