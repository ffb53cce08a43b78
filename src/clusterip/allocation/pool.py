"""Pools: which addresses of one CIDR, and which node ports, are held.

A pool knows what is taken, not by whom: that is the store's to say. `pick` chooses and changes nothing, so that a plan
can be made, refused and made again; `reserve` and `release` change.
"""

from collections.abc import Set
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from clusterip.allocation.bands import Bands, Network, address_bands, port_bands
from clusterip.allocation.numbers import Taken
from clusterip.errors import ClusterIPError

Address: TypeAlias = IPv4Address | IPv6Address


class AllocationError(ClusterIPError):
    """What was asked for cannot be had."""


class AlreadyTaken(AllocationError):
    pass


class OutOfRange(AllocationError):
    """Not a number of this pool at all."""


class NeverAllocated(AllocationError):
    """In the CIDR, but its network or broadcast address."""


class RangeFull(AllocationError):
    def __init__(self) -> None:
        super().__init__("range is full", "delete what is no longer needed, or widen the range")


class AddressPool:
    """The usable addresses of one CIDR."""

    def __init__(self, cidr: Network) -> None:
        self.cidr = cidr
        self.bands = address_bands(cidr)
        self._taken = Taken()

    def __repr__(self) -> str:
        return f"AddressPool({self.cidr} used={self.used} available={self.available})"

    def __contains__(self, address: Address) -> bool:
        """Held. An address of another range or family is not."""
        return address in self.cidr and int(address) in self._taken

    @property
    def used(self) -> int:
        return len(self._taken)

    @property
    def available(self) -> int:
        return self.bands.size - self.used

    def check(self, address: Address) -> None:
        """Raises what `reserve` would, and changes nothing."""
        if address not in self.cidr:
            raise OutOfRange("the provided network does not match the current range")
        if int(address) not in self.bands:
            raise NeverAllocated(
                f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {self.cidr}"
            )
        if int(address) in self._taken:
            raise AlreadyTaken("provided IP is already allocated")

    def reserve(self, address: Address) -> None:
        """Raises OutOfRange, NeverAllocated, AlreadyTaken."""
        self.check(address)
        self._taken.add(int(address))

    def release(self, address: Address) -> bool:
        """False if it was not held."""
        return address in self.cidr and self._taken.discard(int(address))

    def pick(self, start: float, besides: Set[Address] = frozenset()) -> Address:
        """A free address that is not in `besides`, from the dynamic band, else from the static one. `start`, 0 <=
        start < 1, says where in the band the search begins. Raises RangeFull."""
        number = _pick(self._taken, self.bands, start, {int(a) for a in besides if a.version == self.cidr.version})
        # An int alone would make ip_address guess the family: small IPv6 numbers look like IPv4.
        return ip_address(number) if self.cidr.version == 4 else IPv6Address(number)


class PortPool:
    """Node ports `first` to `last`, both included."""

    def __init__(self, first: int = 30000, last: int = 32767) -> None:
        self.bands = port_bands(first, last)
        self._taken = Taken()

    def __repr__(self) -> str:
        return f"PortPool({self.bands.first}-{self.bands.last} used={self.used} available={self.available})"

    def __contains__(self, port: int) -> bool:
        return port in self._taken

    @property
    def used(self) -> int:
        return len(self._taken)

    @property
    def available(self) -> int:
        return self.bands.size - self.used

    def check(self, port: int) -> None:
        """Raises what `reserve` would, and changes nothing."""
        if port not in self.bands:
            raise OutOfRange(
                "provided port is not in the valid range. "
                f"The range of valid ports is {self.bands.first}-{self.bands.last}"
            )
        if port in self._taken:
            raise AlreadyTaken("provided port is already allocated")

    def reserve(self, port: int) -> None:
        """Raises OutOfRange, AlreadyTaken."""
        self.check(port)
        self._taken.add(port)

    def release(self, port: int) -> bool:
        """False if it was not held."""
        return self._taken.discard(port) if port >= 0 else False

    def pick(self, start: float, besides: Set[int] = frozenset()) -> int:
        """As `AddressPool.pick`."""
        return _pick(self._taken, self.bands, start, besides)


def _pick(taken: Taken, bands: Bands, start: float, besides: Set[int]) -> int:
    for low, high in ((bands.dynamic, bands.last), (bands.first, bands.dynamic - 1)):
        if low > high:
            continue
        begin = min(low + int(start * (high - low + 1)), high)
        for first, last in ((begin, high), (low, begin - 1)):
            number = taken.next_free(first)
            while number in besides:
                number = taken.next_free(number + 1)
            if number <= last:
                return number
    raise RangeFull
