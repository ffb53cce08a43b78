"""Which numbers of a range are given out by themselves, and which are kept for those who ask for one by name.

The lower, static band is handed out automatically only when the upper, dynamic one is full: an address asked for from
the lower band will therefore hardly ever be taken. Source: KEP-3070 (addresses), KEP-3668 (node ports).
"""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Bands:
    """Usable numbers `first` to `last`, both included; those below `dynamic` are the static band."""

    first: int
    dynamic: int  # first <= dynamic <= last
    last: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def address_bands(cidr: Network) -> Bands:
    """Never usable: the all-zero host address, and in IPv4 the broadcast address."""
    first = int(cidr.network_address) + 1
    last = int(cidr.broadcast_address) - (1 if cidr.version == 4 else 0)
    total = cidr.num_addresses
    static = 0 if total <= 16 else min(max(total // 16, 16), 256)
    return Bands(first, first + static, last)


def port_bands(first: int, last: int) -> Bands:
    size = last - first + 1
    static = 0 if size <= 16 else min(max(size // 32, 16), 128)
    return Bands(first, first + static, last)
