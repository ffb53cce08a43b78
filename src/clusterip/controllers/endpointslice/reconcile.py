"""From the slices there are to the writes that make them what a Service wants. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clusterip.controllers.endpointslice.documents import labels_of, made, owned_by, rewritten
from clusterip.controllers.endpointslice.packing import Packing, identity, pack
from clusterip.controllers.endpointslice.wanted import Group
from clusterip.controllers.writes import Create, Delete, Update, Write
from clusterip.model.objects import EndpointSlice, Service
from clusterip.model.resources import ENDPOINT_SLICES


@dataclass(frozen=True, slots=True)
class Sync:
    """One Service at one moment."""

    service: Service
    moment: str  # trigger time, "" for none
    limit: int  # endpoints a slice, >= 1


@dataclass(frozen=True, slots=True)
class Figures:
    """What a sync did, and what there is after it."""

    added: float = 0
    removed: float = 0
    updated: float = 0  # stayed, and are shown differently now
    endpoints: float = 0  # wanted
    slices: float = 0
    least_slices: float = 0  # if all were packed as tightly as can be

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(
            self.added + other.added,
            self.removed + other.removed,
            self.updated + other.updated,
            self.endpoints + other.endpoints,
            self.slices + other.slices,
            self.least_slices + other.least_slices,
        )


def reconcile(
    sync: Sync, family: str, slices: Sequence[EndpointSlice], groups: Sequence[Group]
) -> tuple[tuple[Write, ...], Figures]:
    """For one address type. `slices`: those of this type that carry the Service's name and our mark."""
    service, labels = sync.service, labels_of(sync.service)
    ours = [slice_ for slice_ in slices if owned_by(slice_, service)]
    packing = pack(ours, groups, sync.limit, lambda slice_: slice_.metadata.labels != labels)
    writes: list[Write] = []
    namespace = service.metadata.namespace
    if service.metadata.deletion_timestamp is None:
        writes.extend(
            Create(ENDPOINT_SLICES, namespace, made(make, family, service, sync.moment)) for make in packing.makes
        )
    writes.extend(
        Update(ENDPOINT_SLICES, namespace, r.slice.metadata.name, rewritten(r, service, sync.moment))
        for r in packing.rewrites
    )
    writes.extend(deletions(packing.deletes))
    # Of an older Service with the same name: its endpoints are not ours, whatever its labels say.
    writes.extend(deletions([slice_ for slice_ in slices if not owned_by(slice_, service)]))
    return tuple(writes), figures(ours, groups, packing, sync.limit)


def deletions(slices: Sequence[EndpointSlice]) -> list[Write]:
    return [Delete(ENDPOINT_SLICES, s.metadata.namespace, s.metadata.name, s.metadata.uid) for s in slices]


def in_order(writes: Sequence[Write]) -> tuple[Write, ...]:
    """Creations first and deletions last: no endpoint is missing in between."""
    ranks: dict[type[Write], int] = {Create: 0, Update: 1, Delete: 2}
    return tuple(sorted(writes, key=lambda write: ranks[type(write)]))


def figures(ours: Sequence[EndpointSlice], groups: Sequence[Group], packing: Packing, limit: int) -> Figures:
    before = {identity(endpoint): endpoint for slice_ in ours for endpoint in slice_.endpoints or ()}
    after = {identity(endpoint): endpoint for group in groups for endpoint in group.endpoints}
    return Figures(
        added=len(after.keys() - before.keys()),
        removed=len(before.keys() - after.keys()),
        updated=sum(before[key] != after[key] for key in after.keys() & before.keys()),
        endpoints=len(after),
        slices=len(packing.makes) + len(packing.rewrites) + len(packing.unchanged),
        least_slices=max(sum(math.ceil(len(group.endpoints) / limit) for group in groups), 1),
    )
