"""Which endpoint goes into which slice, touching as few slices as possible. Pure.

Every watcher of a slice receives it whole for each change, so a change of one endpoint must be one slice's write:
nothing is moved, nothing merged, and a slice that needs no change is left alone even when it is nearly empty.
Source: conformance 3.6.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from clusterip.controllers.endpointslice.wanted import Group, Ports, port_key
from clusterip.model.objects import Endpoint, EndpointSlice

Identity: TypeAlias = tuple[tuple[str, ...], str, str, str]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A slice that is to hold these endpoints and ports."""

    slice: EndpointSlice
    ports: Ports
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Make:
    ports: Ports
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    makes: tuple[Make, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    deletes: tuple[EndpointSlice, ...] = ()
    unchanged: tuple[EndpointSlice, ...] = ()


PLACEHOLDER = Make((), ())


def identity(endpoint: Endpoint) -> Identity:
    """What makes two endpoints the same one; all else may change in place."""
    target = endpoint.target_ref
    return (
        tuple(sorted(endpoint.addresses)),
        endpoint.hostname or "",
        target.namespace if target else "",
        target.name if target else "",
    )


def ports_of_slice(slice_: EndpointSlice) -> Ports:
    return tuple(sorted(slice_.ports or (), key=port_key))


def pack(
    slices: Sequence[EndpointSlice], groups: Sequence[Group], limit: int, outdated: Callable[[EndpointSlice], bool]
) -> Packing:
    """For one address type. `slices`: those the Service owns; `outdated`: its metadata must be written anew, whatever
    its endpoints. At most `limit` endpoints a slice."""
    by_ports: dict[tuple[tuple[str, str, int, str], ...], list[EndpointSlice]] = {}
    for slice_ in slices:
        by_ports.setdefault(tuple(map(port_key, ports_of_slice(slice_))), []).append(slice_)
    makes: list[Make] = []
    rewrites: list[Rewrite] = []
    deletes: list[EndpointSlice] = []
    unchanged: list[EndpointSlice] = []
    for group in groups:
        packed = _pack_group(by_ports.pop(tuple(map(port_key, group.ports)), []), group, limit, outdated)
        makes.extend(packed.makes)
        rewrites.extend(packed.rewrites)
        deletes.extend(packed.deletes)
        unchanged.extend(packed.unchanged)
    deletes.extend(slice_ for left in by_ports.values() for slice_ in left)
    if not makes and not rewrites and not unchanged:
        _keep_placeholder(makes, deletes, unchanged, outdated)
    # A doomed slice becomes a new one: one write and one event instead of two, and the name stays.
    while makes and deletes:
        make, doomed = makes.pop(0), deletes.pop(0)
        rewrites.append(Rewrite(doomed, make.ports, make.endpoints))
    return Packing(tuple(makes), tuple(rewrites), tuple(deletes), tuple(unchanged))


def _keep_placeholder(
    makes: list[Make],
    deletes: list[EndpointSlice],
    unchanged: list[EndpointSlice],
    outdated: Callable[[EndpointSlice], bool],
) -> None:
    """One slice there must be: that there is nobody is known only if somebody says so."""
    for slice_ in deletes:
        if not slice_.endpoints and not slice_.ports and not outdated(slice_):
            deletes.remove(slice_)
            unchanged.append(slice_)
            return
    makes.append(PLACEHOLDER)


def _pack_group(
    slices: Sequence[EndpointSlice], group: Group, limit: int, outdated: Callable[[EndpointSlice], bool]
) -> Packing:
    remaining = {identity(endpoint): endpoint for endpoint in group.endpoints}
    unchanged: list[EndpointSlice] = []
    deletes: list[EndpointSlice] = []
    filling: list[tuple[EndpointSlice, list[Endpoint]]] = []
    for slice_ in slices:
        kept, changed = _keep(slice_, remaining)
        if not kept:
            deletes.append(slice_)
        elif changed or outdated(slice_):
            filling.append((slice_, kept))
        else:
            unchanged.append(slice_)
    rest = list(remaining.values())
    for _, endpoints in sorted(filling, key=lambda item: -len(item[1])):
        take = max(limit - len(endpoints), 0)
        endpoints.extend(rest[:take])
        rest = rest[take:]
    makes: list[Make] = []
    while rest:
        roomy = _closest_to_full(unchanged, len(rest), limit)
        if roomy is not None:
            unchanged.remove(roomy)
            filling.append((roomy, [*(roomy.endpoints or ()), *rest]))
            break
        makes.append(Make(group.ports, tuple(rest[:limit])))
        rest = rest[limit:]
    rewrites = tuple(Rewrite(slice_, group.ports, tuple(endpoints)) for slice_, endpoints in filling)
    return Packing(tuple(makes), rewrites, tuple(deletes), tuple(unchanged))


def _keep(slice_: EndpointSlice, remaining: dict[Identity, Endpoint]) -> tuple[list[Endpoint], bool]:
    """What of a slice stays, as it should be now, and whether that is a change. Takes it out of `remaining`."""
    kept: list[Endpoint] = []
    changed = False
    for endpoint in slice_.endpoints or ():
        wanted = remaining.pop(identity(endpoint), None)
        if wanted is not None:
            kept.append(wanted)
        changed |= wanted != endpoint
    return kept, changed


def _closest_to_full(slices: Sequence[EndpointSlice], more: int, limit: int) -> EndpointSlice | None:
    """Of those that have room for all of them, the fullest. For a slice's worth none has: there are no empty ones."""
    roomy = [slice_ for slice_ in slices if len(slice_.endpoints or ()) + more <= limit]
    return max(roomy, key=lambda slice_: len(slice_.endpoints or ()), default=None)
