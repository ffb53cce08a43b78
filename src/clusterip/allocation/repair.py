"""The plan of the repair loop: what the store holds, against what the Services say they hold.

Run at start and every three minutes. What is plainly missing is written, what nobody uses is removed after a while (a
write may be under way), and what cannot be mended is told in an event. Source: conformance 2.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from ipaddress import ip_address

from clusterip.allocation.plan import ip_address_object
from clusterip.allocation.pool import Address
from clusterip.allocation.pools import Pools
from clusterip.allocation.shape import addresses, cluster_ips, headless, needs_cluster_ip, node_ports, service_type
from clusterip.model.status import Object

ORPHAN_AFTER = 60.0  # seconds an IPAddress may be without its Service
YOUNGER_THAN_SERVICE = 5.0  # seconds an IPAddress newer than a Service that does not list it is left alone
ROUNDS = 3  # rounds in a row that a port must be seen without a user


class Reason(Enum):
    """Of the event on the Service or, for the last two, on the IPAddress."""

    CLUSTER_IP_NOT_VALID = "ClusterIPNotValid"
    CLUSTER_IP_OUT_OF_RANGE = "ClusterIPOutOfRange"
    CLUSTER_IP_NOT_ALLOCATED = "ClusterIPNotAllocated"
    CLUSTER_IP_ALREADY_ALLOCATED = "ClusterIPAlreadyAllocated"
    PORT_NOT_ALLOCATED = "PortNotAllocated"
    PORT_ALREADY_ALLOCATED = "PortAlreadyAllocated"
    PORT_OUT_OF_RANGE = "PortOutOfRange"
    IP_ADDRESS_NOT_ALLOCATED = "IPAddressNotAllocated"
    IP_ADDRESS_WRONG_REFERENCE = "IPAddressWrongReference"


@dataclass(frozen=True, slots=True)
class Warn:
    about: Object  # the Service or IPAddress
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Repair:
    write_addresses: tuple[Object, ...] = ()  # IPAddress documents to create, or to put in place of one that is wrong
    delete_addresses: tuple[str, ...] = ()  # names of IPAddresses
    reserve_ports: tuple[tuple[int, str], ...] = ()  # (port, "namespace/name" of its Service)
    release_ports: tuple[int, ...] = ()
    warnings: tuple[Warn, ...] = ()
    leaking: Mapping[int, int] | None = None  # port without a user -> rounds seen so: give it to the next round


def repair_addresses(services: Sequence[Object], held: Sequence[Object], pools: Pools, now: float) -> Repair:
    """`held`: the IPAddresses there are; `now`: seconds since the epoch."""
    by_name = {str(item["metadata"]["name"]): item for item in held}
    owners: dict[Address, Object] = {}
    written: list[Object] = []
    warnings: list[Warn] = []
    for service in sorted(services, key=_age):
        if not needs_cluster_ip(service) or headless(service):
            continue
        warnings.extend(_invalid_texts(service))
        for address in addresses(service):
            if address in owners:
                message = (
                    f"{address} belongs to an older Service; delete this one and make it again to get another address"
                )
                warnings.append(Warn(service, Reason.CLUSTER_IP_ALREADY_ALLOCATED, message))
                continue
            owners[address] = service
            wrong = _wrong(service, address, by_name.get(str(address)), pools)
            if wrong:
                warnings.append(wrong)
                if wrong.reason is not Reason.CLUSTER_IP_OUT_OF_RANGE:
                    written.append(ip_address_object(address, *_key(service)))
    deleted, orphaned = _orphans(services, held, owners, now)
    return Repair(tuple(written), deleted, warnings=(*warnings, *orphaned))


def repair_ports(
    services: Sequence[Object], held: Mapping[int, str], pools: Pools, leaking: Mapping[int, int]
) -> Repair:
    """`held`: port -> "namespace/name" as the store has it; `leaking`: from the round before."""
    owners: dict[int, Object] = {}
    reserved: list[tuple[int, str]] = []
    warnings: list[Warn] = []
    for service in sorted(services, key=_age):
        name = "/".join(_key(service))
        for port in node_ports(service):
            if port in owners:
                message = f"node port {port} belongs to an older Service; name another in spec.ports"
                warnings.append(Warn(service, Reason.PORT_ALREADY_ALLOCATED, message))
                continue
            owners[port] = service
            if port not in pools.ports.bands:
                message = f"node port {port} is not in the range {pools.ports.bands.first}-{pools.ports.bands.last}"
                warnings.append(Warn(service, Reason.PORT_OUT_OF_RANGE, message))
            elif held.get(port) != name:
                warnings.append(
                    Warn(service, Reason.PORT_NOT_ALLOCATED, f"node port {port} was held by nobody; reserved it")
                )
                reserved.append((port, name))
    seen = {port: leaking.get(port, 0) + 1 for port in held if port not in owners}
    released = tuple(port for port, rounds in seen.items() if rounds >= ROUNDS)
    return Repair(
        reserve_ports=tuple(reserved),
        release_ports=released,
        warnings=tuple(warnings),
        leaking={port: rounds for port, rounds in seen.items() if rounds < ROUNDS},
    )


def _key(service: Object) -> tuple[str, str]:
    return service["metadata"].get("namespace", ""), service["metadata"]["name"]


def _age(service: Object) -> tuple[str, str, str]:
    """The older of two that claim one number keeps it."""
    return str(service["metadata"].get("creationTimestamp") or ""), *_key(service)


def _seconds(document: Object) -> float:
    text = document["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _invalid_texts(service: Object) -> list[Warn]:
    found = []
    for text in cluster_ips(service):
        try:
            ip_address(text)
        except ValueError:
            message = f"clusterIP {text} is no IP address; delete the Service and make it again"
            found.append(Warn(service, Reason.CLUSTER_IP_NOT_VALID, message))
    return found


def _wrong(service: Object, address: Address, held: Object | None, pools: Pools) -> Warn | None:
    """What is wrong with the IPAddress of a Service's address, if anything."""
    if not any(address in pool.cidr for pool in pools.addresses):
        message = f"{address} is in no ServiceCIDR; delete the Service and make it again, or add a ServiceCIDR"
        return Warn(service, Reason.CLUSTER_IP_OUT_OF_RANGE, message)
    if held is None:
        message = f"{address} had no IPAddress; made it again"
        return Warn(service, Reason.CLUSTER_IP_NOT_ALLOCATED, message)
    wanted = ip_address_object(address, *_key(service))
    labels = held["metadata"].get("labels") or {}
    if held.get("spec") != wanted["spec"] or any(labels.get(k) != v for k, v in wanted["metadata"]["labels"].items()):
        message = f"{address} belongs to Service {'/'.join(_key(service))}; made it again so"
        return Warn(held, Reason.IP_ADDRESS_WRONG_REFERENCE, message)
    return None


def _orphans(
    services: Sequence[Object], held: Sequence[Object], owners: Mapping[Address, Object], now: float
) -> tuple[tuple[str, ...], list[Warn]]:
    """IPAddresses that no Service lists, and for how long that may be so."""
    by_key = {_key(service): service for service in services}
    deleted: list[str] = []
    warnings: list[Warn] = []
    for item in held:
        parent = (item.get("spec") or {}).get("parentRef") or {}
        name = str(item["metadata"]["name"])
        if ip_address(name) in owners or parent.get("resource") != "services":
            continue
        service = by_key.get((parent.get("namespace", ""), parent.get("name", "")))
        if now - _seconds(item) <= _patience(item, service):
            continue
        deleted.append(name)
        message = f"Service {parent.get('namespace')}/{parent.get('name')} does not have {name}; removed it"
        warnings.append(Warn(item, Reason.IP_ADDRESS_NOT_ALLOCATED, message))
    return tuple(deleted), warnings


def _patience(item: Object, service: Object | None) -> float:
    """Seconds of age up to which an unused IPAddress may belong to a write under way."""
    if service is None or service_type(service) == "ExternalName":
        return ORPHAN_AFTER
    return YOUNGER_THAN_SERVICE if _seconds(item) > _seconds(service) else -1.0
