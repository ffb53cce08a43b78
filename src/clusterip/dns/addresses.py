"""Addresses in names, both ways, and the index that says whose address one is."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias, TypeVar

from clusterip.model.objects import EndpointSlice, Namespace, Pod, Service, Value

SERVICE_NAME = "kubernetes.io/service-name"
ServiceKey: TypeAlias = tuple[str, str]  # namespace, name
# What an answer was made from; a change of it makes the answer old: ("service", N, S), ("address", IP),
# ("namespace", N).
Concern: TypeAlias = tuple[str, ...]
K = TypeVar("K")


class Addresses:
    """Which Services, and which namespaces' pods, have an address. Kept by the changes of the objects.

    A key stands once for each object that gives it the address: few, so a tuple is smaller than a count.
    """

    def __init__(self) -> None:
        self._services: dict[str, tuple[ServiceKey, ...]] = {}
        self._pods: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"Addresses({len(self._services)} of Services, {len(self._pods)} of pods)"

    def services(self, address: str) -> tuple[ServiceKey, ...]:
        return tuple(sorted(set(self._services.get(address, ()))))

    def pod_namespaces(self, address: str) -> frozenset[str]:
        return frozenset(self._pods.get(address, ()))

    def follow(self, changes: Iterable[tuple[Value | None, Value | None]]) -> frozenset[Concern]:
        """Takes (before, after) of each changed object; gives the concerns whose answers are old now."""
        old: set[Concern] = set()
        for before, after in changes:
            if before is not None:
                self._take_out(before)
                old.update(_concerns(before))
            if after is not None:
                self._put_in(after)
                old.update(_concerns(after))
        return frozenset(old)

    def _put_in(self, value: Value) -> None:
        if isinstance(value, Pod):
            for address in _addresses(value):
                self._pods[address] = (*self._pods.get(address, ()), value.metadata.namespace)
        elif (key := _service_key(value)) is not None:
            for address in _addresses(value):
                self._services[address] = (*self._services.get(address, ()), key)

    def _take_out(self, value: Value) -> None:
        if isinstance(value, Pod):
            for address in _addresses(value):
                _drop_one(self._pods, address, value.metadata.namespace)
        elif (key := _service_key(value)) is not None:
            for address in _addresses(value):
                _drop_one(self._services, address, key)


def _drop_one(index: dict[str, tuple[K, ...]], address: str, key: K) -> None:
    held = list(index.pop(address, ()))
    if key in held:
        held.remove(key)
    if held:
        index[address] = tuple(held)


def _concerns(value: Value) -> Iterator[Concern]:
    if isinstance(value, Namespace):
        yield ("namespace", value.metadata.name)
    elif (key := _service_key(value)) is not None:
        yield ("service", *key)
    yield from (("address", address) for address in _addresses(value))


def _service_key(value: Value) -> ServiceKey | None:
    match value:
        case Service(metadata=meta):
            return meta.namespace, meta.name
        case EndpointSlice(metadata=meta) if SERVICE_NAME in meta.labels:
            return meta.namespace, meta.labels[SERVICE_NAME]
        case _:
            return None


def _addresses(value: Value) -> frozenset[str]:
    match value:
        case Service():
            return frozenset(cluster_ips(value))
        case EndpointSlice():
            return frozenset(address for endpoint in value.endpoints or () for address in endpoint.addresses)
        case Pod() if not value.status.ended and not value.spec.host_network:
            return frozenset(p.ip for p in value.status.pod_ips) or frozenset({value.status.pod_ip} - {""})
        case _:
            return frozenset()


def is_headless(service: Service) -> bool:
    return service.spec.cluster_ip == "None"


def cluster_ips(service: Service) -> tuple[str, ...]:
    """Its addresses; none if it is headless or has not been given one yet."""
    return tuple(a for a in service.spec.cluster_ips or (service.spec.cluster_ip,) if a not in ("", "None"))


def endpoint_id(address: str) -> str:
    """A label for an endpoint that has no host name. One that ends in a dash would not be a label: it gets a zero."""
    label = address.replace(".", "-").replace(":", "-")
    return f"{label}0" if label.endswith("-") else label


def pod_address(label: str) -> str | None:
    """10-244-1-3 and fd00--3 spell addresses."""
    for parse, separator in ((IPv4Address, "."), (IPv6Address, ":")):
        try:
            return str(parse(label.replace("-", separator)))
        except ValueError:
            continue
    return None


def address_of_reverse(name: tuple[str, ...]) -> str | None:
    """4.3.2.1.in-addr.arpa and the nibble form below ip6.arpa; None if it is not a whole address."""
    try:
        if name[-2:] == ("in-addr", "arpa"):
            return str(IPv4Address(".".join(reversed(name[:-2]))))
        if len(name) != 34 or any(len(label) != 1 for label in name[:-2]):
            return None
        return str(IPv6Address(bytes.fromhex("".join(reversed(name[:-2])))))
    except ValueError:
        return None
