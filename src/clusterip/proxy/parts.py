"""What the loop is given: where it reads, what serves each family, how it goes about it."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from clusterip.client.view import Change, Ref, View
from clusterip.model.objects import Value
from clusterip.proxy.pending import FamilyProxier, ServedAddresses
from clusterip.proxy.service_health import ServiceHealth
from clusterip.services.table import Entry


class Source(Protocol):
    """What the loop needs of a `client.Mirror`."""

    view: View
    synced: asyncio.Event
    revision: str

    async def changes(self) -> Mapping[Ref, Change]: ...

    def told(self, as_type: type[Value], /) -> int: ...


@dataclass(frozen=True, slots=True)
class FamilyParts:
    """All that serves one family."""

    proxier: FamilyProxier
    service_health: ServiceHealth
    served_addresses: ServedAddresses


@dataclass(frozen=True, slots=True)
class Settings:
    node: str  # our node's name
    mode: str
    min_sync_period: float  # seconds
    sync_period: float  # seconds
    pod_ranges: tuple[str, ...] | None = None  # that the rules were built on; None: they do not come from the Node
    netns: str = ""  # where connection tracking is read; "": our own namespace


class Others(Protocol):
    """`leftovers.Leftovers`: what other modes, ours or kube-proxy's, have in the kernel."""

    left: tuple[str, ...]  # what is still to go, in words

    async def yield_to(self, mode: str) -> None: ...
    async def remove(self, mode: str, entries: Iterable[Entry]) -> None: ...
    def due(self, now: float) -> bool: ...
