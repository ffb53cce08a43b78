"""All pools of a cluster: the addresses of its ServiceCIDRs, and its node ports.

ServiceCIDRs may overlap. An address held is therefore held in every range that contains it.
"""

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network

from clusterip.allocation.bands import Network
from clusterip.allocation.pool import Address, AddressPool, AllocationError, OutOfRange, PortPool, RangeFull

FAMILIES: Mapping[int, str] = {4: "IPv4", 6: "IPv6"}


@dataclass(frozen=True, slots=True)
class Hold:
    """What one write takes and gives back. `taken` is taken before the write is committed, or it would be given to
    another meanwhile; `released` is released after it."""

    take_addresses: tuple[Address, ...] = ()
    release_addresses: tuple[Address, ...] = ()
    take_ports: tuple[int, ...] = ()
    release_ports: tuple[int, ...] = ()


class Pools:
    """`take(hold)`, commit, then `settle(hold)`, or `undo(hold)` if the commit failed."""

    def __init__(self, ports: PortPool, cidrs: Iterable[Network] = ()) -> None:
        self.ports = ports
        self._addresses: dict[Network, AddressPool] = {}
        self._closed: frozenset[Network] = frozenset()
        self._held: set[Address] = set()
        self.serve(cidrs)

    def __repr__(self) -> str:
        return f"Pools({', '.join(map(repr, self._addresses.values()))}, {self.ports!r})"

    @property
    def addresses(self) -> tuple[AddressPool, ...]:
        return tuple(self._addresses.values())

    def serve(self, usable: Iterable[Network], closed: Iterable[Network] = ()) -> None:
        """The ranges as they are from now on. From `closed` ones (not ready, or going) nothing new is given; what is
        held in them stays known."""
        usable = tuple(usable)
        self._closed = frozenset(closed) - frozenset(usable)
        wanted = dict.fromkeys((*usable, *self._closed))
        for cidr in [c for c in self._addresses if c not in wanted]:
            del self._addresses[cidr]
        for cidr in wanted:
            if cidr not in self._addresses:
                self._addresses[cidr] = pool = AddressPool(cidr)
                for address in self._held:
                    _hold(pool, address)

    def of_family(self, family: str) -> tuple[AddressPool, ...]:
        """Those from which addresses of "IPv4" or "IPv6" may be given."""
        return tuple(
            pool
            for cidr, pool in self._addresses.items()
            if FAMILIES[cidr.version] == family and cidr not in self._closed
        )

    def check(self, address: Address) -> None:
        """Raises AllocationError unless the address is free in some range that may give it."""
        refused: AllocationError = OutOfRange("the provided network does not match the current range")
        for pool in self.of_family(FAMILIES[address.version]):
            if address in pool.cidr:
                try:
                    return pool.check(address)
                except AllocationError as error:
                    refused = error
        raise refused

    def pick(self, family: str, start: float, besides: Set[Address] = frozenset()) -> Address:
        """A free address of the family, from the first range that has one. Raises RangeFull."""
        for pool in self.of_family(family):
            try:
                return pool.pick(start, besides)
            except RangeFull:
                continue
        raise RangeFull

    def hold(self, address: Address) -> None:
        """Marks it as held, in whatever ranges contain it; none has to. For what the store says is held."""
        self._held.add(address)
        for pool in self._addresses.values():
            _hold(pool, address)

    def hold_port(self, port: int) -> None:
        """As `hold`: one outside of the range, or held already, is left as it is."""
        with suppress(AllocationError):
            self.ports.reserve(port)

    def drop(self, address: Address) -> None:
        self._held.discard(address)
        for pool in self._addresses.values():
            pool.release(address)

    def take(self, hold: Hold) -> None:
        for address in hold.take_addresses:
            self.hold(address)
        for port in hold.take_ports:
            self.ports.reserve(port)

    def undo(self, hold: Hold) -> None:
        for address in hold.take_addresses:
            self.drop(address)
        for port in hold.take_ports:
            self.ports.release(port)

    def settle(self, hold: Hold) -> None:
        for address in hold.release_addresses:
            self.drop(address)
        for port in hold.release_ports:
            self.ports.release(port)


def networks(cidrs: Iterable[str]) -> tuple[Network, ...]:
    """The texts that are CIDRs, in order; others are left out."""
    found = []
    for text in cidrs:
        try:
            found.append(ip_network(text))
        except ValueError:
            continue
    return tuple(found)


def _hold(pool: AddressPool, address: Address) -> None:
    with suppress(AllocationError):  # of another range, or held already: both are as wanted
        pool.reserve(address)
