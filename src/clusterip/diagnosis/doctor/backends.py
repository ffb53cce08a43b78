"""Whom the API says a Service port sends to, with the Service or without, by slices or by Endpoints. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.packet import socket
from clusterip.model import objects as o
from clusterip.services.resolve import NodeContext, resolve
from clusterip.services.table import FAMILIES, Entry, Family


def families_of(service: o.Service) -> tuple[Family, ...]:
    """Those it has addresses of, or asks for."""
    addresses = service.spec.cluster_ips or (service.spec.cluster_ip,)
    six = any(":" in a for a in addresses) or "IPv6" in service.spec.ip_families
    four = any("." in a for a in addresses) or "IPv4" in service.spec.ip_families
    return (*(("IPv4",) if four else ()), *(("IPv6",) if six else ()))


def entries_of(known: Known, key: Key) -> tuple[Entry, ...]:
    """Its part of the service table, as the node that was asked about has it; () without the Service."""
    service = known.services.get(key)
    if service is None:
        return ()
    node = NodeContext(known.node)
    slices = known.slices_of.get(key, ())
    return tuple(entry for family in FAMILIES for entry in resolve(service, slices, node, family))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The backends of one Service port, whatever the family."""

    held: frozenset[str]  # every address and port that a slice holds, ready or not
    usable: tuple[str, ...]  # those that new connections should go to; sorted
    going: frozenset[str] = frozenset()  # those that are terminating
    exact: bool = True  # False: hints or a Local policy leave some out on some nodes, and the node is not known

    def of_family(self, *, six: bool) -> "Wanted":
        """Those that a frontend of this family may be sent to."""
        mine = frozenset(b for b in self.held if b.startswith("[") == six)
        return replace(self, held=mine, usable=tuple(b for b in self.usable if b in mine))


def wanted(known: Known, key: Key) -> Mapping[str, Wanted]:
    """By the name of the Service port; {} where the API was not asked for this Service's endpoints."""
    if slices := known.slices_of.get(key, ()):
        return _of_slices(known, key, slices)
    if endpoints := known.endpoints.get(key):
        return _of_endpoints(endpoints)
    return {}


def _of_slices(known: Known, key: Key, slices: Iterable[o.EndpointSlice]) -> dict[str, Wanted]:
    held: dict[str, set[str]] = {}
    usable: dict[str, set[str]] = {}
    last_resort: dict[str, set[str]] = {}
    going: set[str] = set()
    hinted = False
    for s in slices:
        for port, endpoint, backend in members(s):
            held.setdefault(port.name or "", set()).add(backend)
            hinted |= bool(endpoint.hints)
            going |= {backend} if endpoint.conditions.terminating else set()
            if endpoint.conditions.ready is not False:
                usable.setdefault(port.name or "", set()).add(backend)
            elif endpoint.conditions.serving is not False and endpoint.conditions.terminating:
                last_resort.setdefault(port.name or "", set()).add(backend)
    service = known.services.get(key)
    exact = not hinted and (service is None or service.spec.internal_traffic_policy != "Local")
    return {
        name: Wanted(
            frozenset(all_of), tuple(sorted(usable.get(name) or last_resort.get(name, set()))), frozenset(going), exact
        )
        for name, all_of in held.items()
    }


def _of_endpoints(endpoints: o.Endpoints) -> dict[str, Wanted]:
    held: dict[str, set[str]] = {}
    usable: dict[str, set[str]] = {}
    for subset in endpoints.subsets or ():
        for port in subset.ports:
            ready = {socket(a.ip, port.port) for a in subset.addresses}
            usable.setdefault(port.name, set()).update(ready)
            held.setdefault(port.name, set()).update(
                ready, (socket(a.ip, port.port) for a in subset.not_ready_addresses)
            )
    return {name: Wanted(frozenset(all_of), tuple(sorted(usable[name]))) for name, all_of in held.items()}


def members(s: o.EndpointSlice) -> Iterator[tuple[o.EndpointPort, o.Endpoint, str]]:
    """Each endpoint with each port and the two as text: only the first address of an endpoint counts."""
    for port in s.ports or ():
        if not port.port:
            continue
        for endpoint in s.endpoints or ():
            if endpoint.addresses:
                yield port, endpoint, socket(endpoint.addresses[0], port.port)


def equal_shares(backends: Iterable[object]) -> str:
    """ "10.244.1.5:80 1/2, 10.244.1.6:80 1/2"."""
    texts = [str(b) for b in backends]
    return ", ".join(f"{text} 1/{len(texts)}" for text in texts)


def service_object(key: Key, port: str = "") -> str:
    """What a finding names: "service default/web:http"."""
    return f"service {key}" + (f":{port}" if port else "")
