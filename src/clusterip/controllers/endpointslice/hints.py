"""Hints: for which zones and nodes an endpoint is meant, so that proxies keep traffic near. Pure.

Two ways. `spec.trafficDistribution` says the endpoint's own zone (and node). The annotation `topology-mode: Auto`
deals endpoints out to zones by their share of the cluster's CPU, or gives no hints and says why.
Source: conformance 3.7.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from clusterip.controllers.endpointslice.wanted import ZONE, Group
from clusterip.model.objects import Endpoint, EndpointHints, HintTarget, Node, Service

OVERLOAD = Fraction(12, 10)  # a zone may have to carry so much of its fair load
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": Fraction(1000)}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why there are no hints."""

    why: str


def topology_auto(service: Service) -> bool:
    annotations = service.metadata.annotations
    value = annotations.get("service.kubernetes.io/topology-aware-hints")
    if value is None:
        value = annotations.get("service.kubernetes.io/topology-mode", "")
    return value in ("Auto", "auto")


def near(service: Service, groups: Sequence[Group]) -> tuple[Group, ...]:
    """By `spec.trafficDistribution`; other values mean no hints."""
    distribution = service.spec.traffic_distribution
    if distribution not in ("PreferClose", "PreferSameZone", "PreferSameNode"):
        return tuple(groups)
    return _each(groups, lambda endpoint: _own_place(endpoint, node_too=distribution == "PreferSameNode"))


def _own_place(endpoint: Endpoint, *, node_too: bool) -> EndpointHints | None:
    if not endpoint.conditions.ready or not endpoint.zone:
        return None
    nodes = (HintTarget(name=endpoint.node_name),) if node_too and endpoint.node_name else ()
    return EndpointHints(for_zones=(HintTarget(name=endpoint.zone),), for_nodes=nodes)


def by_share(groups: Sequence[Group], nodes: Iterable[Node]) -> tuple[Group, ...] | Unavailable:
    """The annotation's way."""
    shares = zone_shares(nodes)
    if isinstance(shares, Unavailable):
        return shares
    ready = [endpoint for group in groups for endpoint in group.endpoints if endpoint.conditions.ready]
    if any(not endpoint.zone for endpoint in ready):
        return Unavailable("a ready endpoint has no zone")
    if len(ready) < len(shares):
        return Unavailable(f"{len(ready)} ready endpoints are too few for {len(shares)} zones")
    least = {zone: math.ceil(share * len(ready) / OVERLOAD) for zone, share in shares.items()}
    if sum(least.values()) > len(ready):
        return Unavailable("some zone would have to carry more than 120 % of its share")
    dealt = deal([str(endpoint.zone) for endpoint in ready], shares, least)
    zones = {id(endpoint): zone for endpoint, zone in zip(ready, dealt, strict=True)}
    return _each(groups, lambda e: _for_zone(zones[id(e)]) if id(e) in zones else None)


def zone_shares(nodes: Iterable[Node]) -> Mapping[str, Fraction] | Unavailable:
    """Each zone's part of the CPU of the ready nodes that are no control plane."""
    cpus: dict[str, Fraction] = {}
    for node in nodes:
        if any(label in node.metadata.labels for label in _CONTROL_PLANE) or not node_ready(node):
            continue
        zone, cpu = node.metadata.labels.get(ZONE, ""), quantity(node.status.allocatable.get("cpu", ""))
        if not zone or not cpu:
            return Unavailable(f"node {node.metadata.name} has no {'zone' if not zone else 'allocatable CPU'}")
        cpus[zone] = cpus.get(zone, Fraction(0)) + cpu
    if len(cpus) < 2:
        return Unavailable("ready nodes of at least two zones are needed")
    total = sum(cpus.values())
    return {zone: cpu / total for zone, cpu in sorted(cpus.items())}


def node_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def quantity(text: str) -> Fraction:
    """Of CPU: "2", "1500m"; 0 for what cannot be read."""
    number, unit = (text[:-1], _UNITS[text[-1]]) if text and text[-1] in _UNITS else (text, Fraction(1))
    try:
        return Fraction(number) * unit
    except (ValueError, ZeroDivisionError):
        return Fraction(0)


def deal(zones: Sequence[str], shares: Mapping[str, Fraction], least: Mapping[str, int]) -> list[str]:
    """A zone for each endpoint: its own, unless that zone has more than its share while another has less than its
    minimum. `zones`: where the endpoints are."""
    dealt = list(zones)
    counts = {zone: dealt.count(zone) for zone in {*zones, *shares}}
    for index, zone in enumerate(dealt):
        if zone not in shares:  # its nodes are not counted, or gone: anybody may have it
            _move(dealt, counts, index, max(shares, key=lambda z: shares[z] * len(zones) - counts[z]))
    for needy in shares:
        while counts[needy] < least[needy]:
            able = [zone for zone in shares if counts[zone] > least[zone]]
            giver = max(able, key=lambda zone: counts[zone] - shares[zone] * len(zones))
            _move(dealt, counts, max(i for i, zone in enumerate(dealt) if zone == giver), needy)
    return dealt


def _move(dealt: list[str], counts: dict[str, int], index: int, zone: str) -> None:
    counts[dealt[index]] -= 1
    counts[zone] += 1
    dealt[index] = zone


def _for_zone(zone: str) -> EndpointHints:
    return EndpointHints(for_zones=(HintTarget(name=zone),))


def _each(groups: Sequence[Group], hints: Callable[[Endpoint], EndpointHints | None]) -> tuple[Group, ...]:
    return tuple(
        Group(group.ports, tuple(msgspec.structs.replace(e, hints=hints(e)) for e in group.endpoints))
        for group in groups
    )
