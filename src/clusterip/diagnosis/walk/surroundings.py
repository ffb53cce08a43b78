"""What surrounds the rules: whose address is it, by which interface does it come and go."""

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from clusterip.diagnosis.walk.branch import Condition, ConditionKind
from clusterip.rulesets.iptables.values import lone_address


class Route(NamedTuple):
    network: str  # "10.244.1.0/24"; "0.0.0.0/0" is the default
    interface: str
    via: str = ""
    source: str = ""  # the address that packets of this node take by it
    kind: str = "unicast"  # "blackhole", "unreachable", "prohibit": nothing gets through


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`complete`: `local` holds every address of the node, so any other is not its own."""

    local: frozenset[str] = frozenset()  # "" among them: a node's address that nobody knows
    bound: frozenset[str] = frozenset()  # of `local`, those of Services, which IPVS mode keeps on a device of its own
    complete: bool = False
    foreign: Callable[[str], bool] = lambda address: False  # known to be no address of this node
    silent_bridges: frozenset[str] = frozenset()  # known to hand frames from port to port without asking any rules
    pod_ranges: tuple[str, ...] = ()  # as the API or the proxy's rules tell them
    routes: tuple[Route, ...] = ()  # the most specific first
    # (interface, whether IPv6) -> the address it has
    primary: Mapping[tuple[str, bool], str] = field(default_factory=dict)

    def is_local(self, address: str, *, backend: bool = False) -> bool | Condition:
        """Of a `backend` nobody knows it is taken to be a pod's: only those on the node's own network are not."""
        if address in self.local or is_loopback(address):
            return True
        if self.complete or not address or self.foreign(address):
            return False
        kind: ConditionKind = "unknown" if not backend and not self._is_pods(address) else "assumed"
        yes, no = f"{address} is an address of this node", f"{address} is not of this node"
        return Condition(f"local {address}", kind, yes, no)

    def is_own_within(self, network: str) -> Condition:
        """Of this node's address, which is not known, whether it lies in `network`."""
        lone = bool(lone_address(network))
        kind: ConditionKind = "assumed" if lone or self._is_pods(network.partition("/")[0]) else "unknown"
        what = f"the node's own address is in {network}"
        return Condition(f"own {network}", kind, what, what.replace(" is in ", " is not in "))

    def _is_pods(self, address: str) -> bool:
        return any(within(address, r) for r in self.pod_ranges)

    def route(self, address: str) -> Route | None:
        """None: no route is known; which says nothing if none was given."""
        return next((r for r in self.routes if within(address, r.network)), None) if address else None

    def interface(self, address: str) -> str | None:
        route = self.route(address)
        return route.interface if route else None

    def source(self, address: str) -> str:
        """The address that this node's packets to `address` carry; "": not known."""
        if is_loopback(address) or address in self.local:
            return address
        route = self.route(address)
        return (route.source or self.primary.get((route.interface, ":" in address), "")) if route else ""

    def masquerade(self, address: str) -> str:
        """The source that `masquerade` gives to this node's packets to `address`; "": not known.

        IPv4 asks the outgoing interface for an address. What goes to the node itself leaves by loopback, which has none
        that others could use, and the kernel takes the first of whichever interface it lists first.
        """
        if ":" in address or not (is_loopback(address) or address in self.local):
            return self.source(address)
        usable = {a for a in self.local if ":" not in a and a not in self.bound and not is_loopback(a)}
        return usable.pop() if self.complete and len(usable) == 1 else ""


def by_length(routes: Iterable[Route]) -> tuple[Route, ...]:
    return tuple(sorted(routes, key=lambda r: -int(r.network.partition("/")[2])))


@lru_cache(maxsize=1 << 16)
def within(address: str, network: str) -> bool:
    """Of different families: False."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


@lru_cache(maxsize=1 << 14)
def is_network(text: str) -> bool:
    """False for what is no address: the name of a host, a length that no address has."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1 << 14)
def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1 << 12)
def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1 << 16)
def number(address: str) -> int:
    return int(ipaddress.ip_address(address))
