"""Services drawn by lot, as JSON documents for the API. The same seed gives the same Services.

Every feature has a hand of values that is dealt out before it is shuffled anew, so that a few dozen Services have all
of them, in combinations that nobody chose.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from clusterip.services.resolve import SERVICE_NAME_LABEL
from clusterip.services.table import Family

T = TypeVar("T")
Document: TypeAlias = dict[str, Any]

NAMESPACE = "matrix"
EXTERNAL: dict[Family, str] = {"IPv4": "198.51.100.{}", "IPv6": "2001:db8:7::{}"}
BALANCERS: dict[Family, str] = {"IPv4": "192.0.2.{}", "IPv6": "2001:db8:2::{}"}
SHARED = 5  # of each of these: Services share addresses, never a port of one
ADMIN = 9000  # the port that every backend has
SELECTIONS = (
    "red",
    "red",
    "blue",
    "blue",
    "green",
    "green",
    "gold",
    "grey",
    "dark",
    "nobody",
    "",
    "",
    "",
)  # "": by hand
PORTS = (("TCP",), ("TCP",), ("UDP",), ("TCP", "UDP"), ("TCP", "other"))
TARGETS = ("named", "named", "number", "nowhere")
NAMED = {"TCP": "http", "UDP": "dns"}  # ports of a backend's container
RANGES: dict[Family, tuple[str, ...]] = {
    "IPv4": ("203.0.113.0/24", "10.244.1.0/24", "192.168.50.0/24", "0.0.0.0/0"),
    "IPv6": ("2001:db8::/64", "fd00:1:1::/64", "fd00:50::/64", "::/0"),
}
MANUAL_STATES: tuple[dict[str, bool], ...] = (
    {"ready": True},
    {},
    {"ready": False, "serving": False, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": True, "serving": True, "terminating": False},
)


@dataclass(frozen=True, slots=True)
class Spot:
    """A pod that hand-made slices may name."""

    node: str
    zone: str
    addresses: dict[Family, str]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One Service with what belongs to it."""

    service: Document
    ingress: tuple[Document, ...] = ()  # of its status
    slices: tuple[Document, ...] = ()  # made by hand

    @property
    def name(self) -> str:
        return str(self.service["metadata"]["name"])


class Dealer:
    def __init__(self, seed: str, families: Sequence[Family], spots: Sequence[Spot]) -> None:
        self.lot = random.Random(seed)
        self.families = tuple(families)
        self.spots = tuple(spots)
        self._hands: dict[str, list[Any]] = {}

    def deal(self, what: str, values: Sequence[T]) -> T:
        hand = self._hands.setdefault(what, [])
        if not hand:
            hand.extend(self.lot.sample(values, len(values)))
        return hand.pop()  # type: ignore[no-any-return]

    def services(self, numbers: Sequence[int]) -> tuple[Drawn, ...]:
        return tuple(self.service(number) for number in numbers)

    def service(self, number: int) -> Drawn:
        """Number decides its name and its ports: those of two Services are never the same."""
        name = f"s{number:02d}"
        chosen = self.deal("selection", SELECTIONS)
        kind = self.deal("type", ("ClusterIP", "ClusterIP", "NodePort", "NodePort", "LoadBalancer", "LoadBalancer"))
        spec: Document = {"type": kind, "ports": list(self._ports(number))}
        families = self._families(spec)
        if chosen:
            spec["selector"] = {"app" if chosen == "nobody" else "color": chosen}
            spec["publishNotReadyAddresses"] = self.deal("published", (False, False, False, True))
            if near := self.deal("distribution", ("", "", "PreferSameNode", "PreferSameZone")):
                spec["trafficDistribution"] = near
        if self.deal("external", (False, False, True)):
            spec["externalIPs"] = [EXTERNAL[f].format(1 + number % SHARED) for f in families]
        spec |= self._policies(external=kind != "ClusterIP" or "externalIPs" in spec)
        ingress: tuple[Document, ...] = ()
        if kind == "LoadBalancer":
            if ranges := self.deal("ranges", ((), (), (0,), (1,), (2,), (0, 1), (2, 3))):
                spec["loadBalancerSourceRanges"] = [RANGES[f][n] for f in families for n in ranges]
            mode = self.deal("ipMode", ("VIP", "VIP", "Proxy"))
            ingress = tuple({"ip": BALANCERS[f].format(1 + number % SHARED), "ipMode": mode} for f in families)
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        return Drawn(service, ingress, () if chosen else tuple(self._slices(name, spec["ports"], families)))

    def again(self, drawn: Drawn) -> Drawn:
        """The same Service with another specification. Its families stay, as the API wants it: what is drawn
        for another is for nobody then."""
        new = self.service(int(drawn.name.removeprefix("s")))
        kept = {key: drawn.service["spec"][key] for key in ("ipFamilies", "ipFamilyPolicy")}
        return replace(new, service={**new.service, "spec": {**new.service["spec"], **kept}})

    def _families(self, spec: Document) -> tuple[Family, ...]:
        stacks: list[tuple[Family, ...]] = [(family,) for family in self.families]
        if len(self.families) > 1:
            stacks += [self.families, self.families[::-1]]
        families = self.deal("families", stacks)
        spec["ipFamilies"] = list(families)
        spec["ipFamilyPolicy"] = "RequireDualStack" if len(families) > 1 else "SingleStack"
        return families

    def _ports(self, number: int) -> Iterator[Document]:
        chosen = self.deal("ports", PORTS)
        for index, word in enumerate(chosen):
            protocol = "TCP" if word == "other" else word
            target = self.deal("target", TARGETS)
            yield {
                "name": f"p{index}",
                "protocol": protocol,
                "port": 8000 + number + (1000 if word == "other" else 0),
                "targetPort": {"named": NAMED[protocol], "number": ADMIN}.get(target, target),
            }

    def _policies(self, external: bool) -> Document:
        found: Document = {"internalTrafficPolicy": self.deal("internal", ("Cluster", "Cluster", "Local"))}
        if external:
            found["externalTrafficPolicy"] = self.deal("externalPolicy", ("Cluster", "Local"))
        found["sessionAffinity"] = self.deal("affinity", ("None", "None", "None", "ClientIP"))
        return found

    def _slices(self, name: str, ports: Sequence[Document], families: Sequence[Family]) -> Iterator[Document]:
        """Two a family, in which some endpoints are named twice, and some ports are missing."""
        for family in families:
            for part in ("a", "b"):
                spots = self.lot.sample(self.spots, self.lot.randint(0, 3))
                hinted = self.deal("hinted", (False, False, True))
                yield {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "addressType": family,
                    "metadata": {
                        "name": f"{name}-{family.lower()}-{part}",
                        "namespace": NAMESPACE,
                        "labels": {SERVICE_NAME_LABEL: name},
                    },
                    "ports": [_slice_port(port) for port in ports if self.deal("named", (True, True, False))],
                    "endpoints": [self._endpoint(spot, family, hinted) for spot in spots],
                }

    def _endpoint(self, spot: Spot, family: Family, hinted: bool) -> Document:
        hints = {"hints": {"forZones": [{"name": spot.zone}]}} if hinted else {}
        return {
            "addresses": [spot.addresses[family]],
            "nodeName": spot.node,
            "conditions": self.deal("state", MANUAL_STATES),
            **hints,
        }


def _slice_port(port: Document) -> Document:
    return {"name": port["name"], "protocol": port["protocol"], "port": ADMIN}
