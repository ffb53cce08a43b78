"""The cluster's zone: which records a name has, from the objects of now.

`Zone.answer` is pure but for the objects it reads. It looks up the Service that a name spells and that Service's
slices; it never walks all of them. A name has several records or none (NODATA); a name that is not there at all is
NXDOMAIN; both carry the SOA. Names are tuples of lower-case labels, leaf first, without the root.
Source: Kubernetes DNS-Based Service Discovery, schema version 1.1.0; where that leaves a choice, as CoreDNS does.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from clusterip.dns.addresses import (
    Addresses,
    Concern,
    address_of_reverse,
    cluster_ips,
    endpoint_id,
    is_headless,
    pod_address,
)
from clusterip.model.objects import Endpoint, EndpointSlice, Namespace, Service, Value

SCHEMA_VERSION = "1.1.0"
DNS_SERVICE = ("kube-system", "kube-dns")  # the Service this server stands behind: the address of the zone's NS
MAX_CHAIN = 8  # ExternalName to ExternalName to ..., inside the zone

Name: TypeAlias = tuple[str, ...]
RecordType: TypeAlias = Literal["A", "AAAA", "CNAME", "NS", "PTR", "SOA", "SRV", "TXT"]
T = TypeVar("T", bound=Value)
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")


class Objects(Protocol):
    """The part of `client.view.View` that names are made from."""

    def get(self, as_type: type[T], namespace: str, name: str, /) -> T | None: ...

    def slices(self, namespace: str, service: str, /) -> tuple[EndpointSlice, ...]: ...


class Record(NamedTuple):
    name: Name
    type: RecordType
    data: str  # in master-file text


class Pods(Enum):
    """What `a-b-c-d.N.pod.Z` answers: nothing, the address it spells, or that only if a pod of N has it."""

    DISABLED = "disabled"
    INSECURE = "insecure"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True)
class Answer:
    exists: bool  # False: NXDOMAIN
    records: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    chase: Name = ()  # a CNAME led to this name outside of the zone; its records belong into the answer too
    concerns: frozenset[Concern] = frozenset()


class Zone:
    """`domain` is the cluster domain as labels, such as ("cluster", "local")."""

    def __init__(self, domain: Name, objects: Objects, addresses: Addresses, pods: Pods = Pods.INSECURE) -> None:
        self.domain = domain
        self._objects = objects
        self._addresses = addresses
        self._pods = pods

    def __repr__(self) -> str:
        return f"Zone({'.'.join(self.domain)}, pods {self._pods.value})"

    def answer(self, name: Name, rtype: str) -> Answer | None:
        """What is said to a question of type `rtype` ("ANY": all there is); None: not our name, ask elsewhere.

        Reverse names are ours only if an address of a Service or a headless endpoint has them.
        """
        if name[-2:] in (("in-addr", "arpa"), ("ip6", "arpa")):
            return self._reverse(name, rtype)
        if not self.holds(name):
            return None
        return self._forward(name, rtype)

    def holds(self, name: Name) -> bool:
        return name[-len(self.domain) :] == self.domain

    def soa(self) -> Record:
        """The serial is fixed: nobody transfers this zone. The last number is how long a "no" may be remembered, s."""
        apex = text(self.domain)
        return Record(self.domain, "SOA", f"ns.dns.{apex} hostmaster.{apex} 1 7200 1800 86400 5")

    def _forward(self, name: Name, rtype: str) -> Answer:
        said: list[Record] = []
        concerns: set[Concern] = set()
        for _ in range(MAX_CHAIN):
            found = self._at(name, concerns)
            if found is None:
                return Answer(False, tuple(said), authority=(self.soa(),), concerns=frozenset(concerns))
            cname = next((r for r in found if r.type == "CNAME"), None)
            if cname is None or rtype in ("CNAME", "ANY"):
                return self._answered((*said, *(r for r in found if rtype in (r.type, "ANY"))), concerns)
            said.append(cname)
            name = labels(cname.data)
            if not self.holds(name):
                return Answer(True, tuple(said), chase=name, concerns=frozenset(concerns))
        return self._answered(tuple(said), concerns)

    def _answered(self, records: tuple[Record, ...], concerns: set[Concern]) -> Answer:
        authority = () if records else (self.soa(),)
        return Answer(True, records, self._targets(records), authority, concerns=frozenset(concerns))

    def _targets(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """The addresses of what SRV records point at. They belong to the same Service, so to the same concern."""
        targets = dict.fromkeys(labels(r.data.split()[3]) for r in records if r.type == "SRV")
        found = (r for target in targets for r in self._at(target, set()) or ())
        return tuple(r for r in found if r.type in ("A", "AAAA"))

    def _at(self, name: Name, concerns: set[Concern]) -> tuple[Record, ...] | None:
        """Every record of a name inside the zone; None if there is no such name."""
        match name[: -len(self.domain)]:
            case ():
                return (self.soa(), Record(self.domain, "NS", f"ns.dns.{text(self.domain)}"))
            case ("dns-version",):
                return (Record(name, "TXT", f'"{SCHEMA_VERSION}"'),)
            case ("svc",) | ("dns",):
                return ()
            case ("ns", "dns"):
                concerns.add(("service", *DNS_SERVICE))
                service = self._service(*DNS_SERVICE)
                return () if service is None else tuple(address_records(name, cluster_ips(service)))
            case (namespace, "svc"):
                concerns.add(("namespace", namespace))
                return () if self._objects.get(Namespace, "", namespace) else None
            case (*prefix, service_name, namespace, "svc"):
                concerns.add(("service", namespace, service_name))
                return self._of_service(name, tuple(prefix))
            case (*prefix, "pod") if self._pods is not Pods.DISABLED:
                return self._of_pod(name, tuple(prefix), concerns)
            case _:
                return None

    def _service(self, namespace: str, name: str) -> Service | None:
        """A Service that has an address, or is headless, or stands for an external name."""
        service = self._objects.get(Service, namespace, name)
        if service is None or service.spec.type == "ExternalName" or is_headless(service):
            return service
        return service if cluster_ips(service) else None

    def _of_service(self, name: Name, prefix: Name) -> tuple[Record, ...] | None:
        """`name` is `prefix` below the name of a Service."""
        service_name, namespace = name[len(prefix) : len(prefix) + 2]
        service = self._service(namespace, service_name)
        if service is None:
            return None
        if service.spec.type == "ExternalName":
            if prefix:
                return None
            external = labels(service.spec.external_name)
            return (Record(name, "CNAME", text(external)),) if is_name(external) else ()
        ready = tuple(ready_endpoints(self._objects.slices(namespace, service_name)))
        match prefix:
            case ():
                own = [a for e in ready for a in e.addresses] if is_headless(service) else cluster_ips(service)
                return tuple(address_records(name, own)) or None
            case (endpoint,) if not endpoint.startswith("_"):
                return tuple(address_records(name, [a for e in ready for a in e.addresses if e.id == endpoint])) or None
            case (protocol,):
                ports = service_ports(service, ready)
                return () if any(p.protocol == protocol for p in ports) else None
            case (port, protocol):
                ports = service_ports(service, ready)
                target = text(name[2:])
                return (
                    tuple(
                        Record(name, "SRV", f"0 100 {p.port} {p.host}{target}")
                        for p in ports
                        if (p.name, p.protocol) == (port, protocol)
                    )
                    or None
                )
            case _:
                return None

    def _of_pod(self, name: Name, prefix: Name, concerns: set[Concern]) -> tuple[Record, ...] | None:
        if not prefix:
            return ()
        namespace = prefix[-1]
        concerns.add(("namespace", namespace))
        if len(prefix) > 2 or self._objects.get(Namespace, "", namespace) is None:
            return None
        if len(prefix) == 1:
            return ()
        address = pod_address(prefix[0])
        if address is None:
            return None
        if self._pods is Pods.VERIFIED:
            concerns.add(("address", address))
            if namespace not in self._addresses.pod_namespaces(address):
                return None
        return tuple(address_records(name, [address]))

    def _reverse(self, name: Name, rtype: str) -> Answer | None:
        address = address_of_reverse(name)
        if address is None:
            return None
        # Whether an endpoint's address leads to a Service is up to that Service, too.
        owners = self._addresses.services(address)
        concerns = frozenset({("address", address), *(("service", *owner) for owner in owners)})
        pointers = tuple(dict.fromkeys(Record(name, "PTR", text(to)) for to in self._names_of(address)))
        if not pointers:
            return None
        records = pointers if rtype in ("PTR", "ANY") else ()
        return Answer(True, records, authority=() if records else (self.soa(),), concerns=concerns)

    def _names_of(self, address: str) -> Iterator[Name]:
        for namespace, service_name in self._addresses.services(address):
            service = self._service(namespace, service_name)
            if service is None:
                continue
            base = (service_name, namespace, "svc", *self.domain)
            if address in cluster_ips(service):
                yield base
            elif is_headless(service):
                ready = ready_endpoints(self._objects.slices(namespace, service_name))
                yield from ((e.id, *base) for e in ready if address in e.addresses)


class NamedPort(NamedTuple):
    name: str
    protocol: str  # "_tcp"
    port: int
    host: str  # "H." of a headless endpoint; "" for the Service itself


class ReadyEndpoint(NamedTuple):
    id: str
    addresses: tuple[str, ...]
    ports: tuple[tuple[str, str, int], ...]  # (name, "_tcp", number), named ones only


def service_ports(service: Service, ready: Iterable[ReadyEndpoint]) -> tuple[NamedPort, ...]:
    """The named ports SRV records are made of: a ClusterIP Service's own, each endpoint's of a headless one."""
    if is_headless(service):
        found = (
            NamedPort(f"_{name}", protocol, number, f"{e.id}.") for e in ready for name, protocol, number in e.ports
        )
    else:
        named = (p for p in service.spec.ports or () if p.name)
        found = (NamedPort(f"_{p.name}", f"_{p.protocol.lower()}", p.port, "") for p in named)
    return tuple(dict.fromkeys(found))


def ready_endpoints(slices: Iterable[EndpointSlice]) -> Iterator[ReadyEndpoint]:
    """In order of slice, then as they stand. A Service that publishes not-ready addresses has ready set on them."""
    for piece in slices:
        if piece.address_type not in ("IPv4", "IPv6"):
            continue
        ports = tuple(
            (p.name, f"_{(p.protocol or 'TCP').lower()}", p.port) for p in piece.ports or () if p.name and p.port
        )
        for endpoint in piece.endpoints or ():
            if endpoint.conditions.ready is not False and endpoint.addresses:
                yield ReadyEndpoint(_id(endpoint), endpoint.addresses, ports)


def _id(endpoint: Endpoint) -> str:
    return (endpoint.hostname or endpoint_id(endpoint.addresses[0])).lower()


def address_records(name: Name, addresses: Iterable[str]) -> Iterator[Record]:
    """Old clusters hold addresses such as 10.096.0.1, which are read in two ways: they are left out."""
    for address in dict.fromkeys(addresses):
        with suppress(ValueError):
            yield Record(name, "AAAA" if ip_address(address).version == 6 else "A", address)


def is_name(name: Name) -> bool:
    """It can be written on the wire, and read again from text."""
    return sum(len(label) + 1 for label in name) < 255 and all(_LABEL.fullmatch(label) for label in name)


def labels(name: str) -> Name:
    return tuple(name.lower().rstrip(".").split("."))


def text(name: Name) -> str:
    return ".".join(name) + "."
