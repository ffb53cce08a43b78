"""Addresses of one family for the pods of a node, none given again too soon. Pure, but for `load` and `save`.

A connection may outlive the pod it went to, in a peer, in a cache, in connection tracking. An address that was given
back rests before another pod gets it, also across restarts of the agent.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from clusterip.errors import ClusterIPError

Network: TypeAlias = IPv4Network | IPv6Network

REST = 60.0  # seconds between two pods with the same address
IN_USE = None


class NoAddress(ClusterIPError):
    def __init__(self, network: str, in_use: int, resting: int) -> None:
        super().__init__(
            f"pod network {network}: no address is free, {in_use} in use and {resting} resting for a minute"
        )


@dataclass(frozen=True, slots=True)
class Addresses:
    """`held`: address -> when it was given back (seconds since 1970), or None while it is in use."""

    network: Network
    held: Mapping[str, float | None] = field(default_factory=lambda: MappingProxyType({}))
    last: str = ""  # given last

    @property
    def gateway(self) -> str:
        return str(self.network.network_address + 1)


def take(addresses: Addresses, now: float) -> tuple[Addresses, str]:
    """The next free one after the last. Raises NoAddress."""
    network = addresses.network
    held = {a: since for a, since in addresses.held.items() if since is IN_USE or now - since < REST}
    first, size = network.network_address + 2, network.num_addresses - 3  # without network, gateway, broadcast
    start = int(ip_address(addresses.last)) + 1 - int(first) if addresses.last else 0
    for step in range(max(size, 0)):
        candidate = str(first + (start + step) % size)
        if candidate not in held:
            held[candidate] = IN_USE
            return Addresses(network, MappingProxyType(held), candidate), candidate
    in_use = sum(since is IN_USE for since in held.values())
    raise NoAddress(str(network), in_use, len(held) - in_use)


def give_back(addresses: Addresses, address: str, now: float) -> Addresses:
    """It rests from now on. No error if it was not in use."""
    if addresses.held.get(address, 0.0) is not IN_USE:
        return addresses
    return Addresses(addresses.network, MappingProxyType({**addresses.held, address: now}), addresses.last)


def load(path: Path, network: Network) -> Addresses:
    """What `save` wrote; nothing held where there is no such file, or one of another network."""
    try:
        found = json.loads(path.read_text())
        held = {str(ip_address(a)): None if t is None else float(t) for a, t in found["held"].items()}
        last = str(ip_address(found["last"])) if found["last"] else ""
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return Addresses(network)
    if not all(ip_address(a) in network for a in (*held, *((last,) if last else ()))):
        return Addresses(network)
    return Addresses(network, MappingProxyType(held), last)


def save(path: Path, addresses: Addresses) -> None:
    """Whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"held": dict(addresses.held), "last": addresses.last}))
    os.replace(new, path)
