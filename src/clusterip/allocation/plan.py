"""The plan of one Service write: which addresses and node ports it takes, keeps and gives back.

Nothing is changed here. The API server takes the plan's hold, commits the document together with the objects that
stand for the addresses, and settles or undoes the hold; no await between plan and take.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from ipaddress import ip_address

from clusterip.allocation.pool import Address, AllocationError, RangeFull
from clusterip.allocation.pools import FAMILIES, Hold, Pools
from clusterip.allocation.shape import (
    addresses,
    cluster_ips,
    gives_node_ports,
    headless,
    needs_cluster_ip,
    needs_health_check_node_port,
    needs_node_ports,
    node_ports,
    ports,
    spec,
)
from clusterip.model.status import ApiError, Cause, Object

FREE_ADDRESS = "leave spec.clusterIP empty to get a free one"
FREE_PORT = "leave nodePort empty to get a free one"


@dataclass(frozen=True, slots=True)
class Plan:
    service: Object  # the document with every address and port filled in
    hold: Hold
    dynamic: frozenset[Address | int]  # of what is taken, the chosen; the rest was asked for by name


def plan(old: Object | None, new: Object | None, pools: Pools, draw: Callable[[], float]) -> Plan:
    """`old` None: a creation; `new` None: a deletion. `new` has its defaults, what
    `model.service_update` carries over, and its families.
    `draw` gives a number in [0, 1) each time. Raises ApiError."""
    if new is None:
        assert old is not None
        return Plan(old, Hold(release_addresses=addresses(old), release_ports=node_ports(old)), frozenset())
    making = _Making(old, deepcopy(new), pools, draw)
    if needs_cluster_ip(new) and not headless(new):
        making.cluster_ips()
    if needs_node_ports(new):
        making.node_ports()
    if needs_health_check_node_port(new):
        making.health_check_node_port()
    return making.plan()


class _Making:
    """A plan in the making; its document is its own copy."""

    def __init__(self, old: Object | None, service: Object, pools: Pools, draw: Callable[[], float]) -> None:
        self.old = old
        self.service = service
        self.pools = pools
        self.draw = draw
        self.dynamic: set[Address | int] = set()
        self.taken_ports = set(node_ports(old)) if old else set()  # by the old Service, and so far by this plan

    def plan(self) -> Plan:
        had, has = (addresses(self.old), node_ports(self.old)) if self.old else ((), ())
        wants, uses = addresses(self.service), node_ports(self.service)
        hold = Hold(
            take_addresses=tuple(a for a in dict.fromkeys(wants) if a not in had),
            release_addresses=tuple(a for a in had if a not in wants),
            take_ports=tuple(p for p in uses if p not in has),
            release_ports=tuple(p for p in has if p not in uses),
        )
        return Plan(self.service, hold, frozenset(self.dynamic))

    def cluster_ips(self) -> None:
        """One address for each family; those given are checked, those missing chosen."""
        families: list[str] = spec(self.service).get("ipFamilies") or []
        given = [text for text in cluster_ips(self.service) if text]
        held = addresses(self.old) if self.old else ()
        for text in given:
            try:
                address = ip_address(text)
            except ValueError:
                continue  # validation says what is wrong with it, and then nothing is stored
            if address not in held:
                self._check_address(address, given)
        for family in families[len(given) :]:
            if family not in FAMILIES.values():
                continue  # here too
            try:
                chosen = self.pools.pick(family, self.draw())
            except RangeFull as error:
                raise _internal(f"failed to allocate a serviceIP: {error.message}", error.hint) from None
            self.dynamic.add(chosen)
            given.append(str(chosen))
        if given:
            self.service["spec"]["clusterIPs"] = given
            self.service["spec"]["clusterIP"] = given[0]

    def node_ports(self) -> None:
        """On creation, ports with one number share a node port (TCP and UDP 53 of a DNS server, say)."""
        all_ports = ports(self.service)
        self._refuse_duplicates(all_ports)
        shared: dict[int, int] = {}
        if self.old is None:
            for port in all_ports:
                if port.get("nodePort"):
                    shared.setdefault(port["port"], port["nodePort"])
        for index, port in enumerate(all_ports):
            if port.get("nodePort"):
                self._check_port(index, port["nodePort"])
            elif gives_node_ports(self.service):
                port["nodePort"] = shared.get(port.get("port", 0)) or self._pick_port("failed to allocate a nodePort")
                if self.old is None:
                    shared.setdefault(port.get("port", 0), port["nodePort"])
        self._refuse_duplicates(all_ports)

    def health_check_node_port(self) -> None:
        wanted = spec(self.service).get("healthCheckNodePort") or 0
        if not wanted:
            chosen = self._pick_port("failed to allocate a HealthCheck NodePort")
            self.service["spec"]["healthCheckNodePort"] = chosen
        elif self.old is None or wanted != (spec(self.old).get("healthCheckNodePort") or 0):
            try:
                self.pools.ports.check(wanted)
                if wanted in self.taken_ports:
                    raise AllocationError("provided port is already allocated")
            except AllocationError as error:
                raise _internal(
                    f"failed to allocate requested HealthCheck NodePort {wanted}: {error.message}",
                    "leave healthCheckNodePort empty to get a free one",
                ) from None

    def _check_address(self, address: Address, given: list[str]) -> None:
        try:
            self.pools.check(address)
        except AllocationError as error:
            quoted = ", ".join(f'"{text}"' for text in given)
            message = f"Invalid value: [{quoted}]: failed to allocate IP {address}: {error.message}"
            raise _invalid(self.service, Cause("spec.clusterIPs", "FieldValueInvalid", message), FREE_ADDRESS) from None

    def _check_port(self, index: int, port: int) -> None:
        if port in self.taken_ports:
            return
        try:
            self.pools.ports.check(port)
        except AllocationError as error:
            message = f"Invalid value: {port}: {error.message}"
            cause = Cause(f"spec.ports[{index}].nodePort", "FieldValueInvalid", message)
            raise _invalid(self.service, cause, FREE_PORT) from None
        self.taken_ports.add(port)

    def _pick_port(self, failed: str) -> int:
        asked = {int(port.get("nodePort") or 0) for port in ports(self.service)}
        asked.add(int(spec(self.service).get("healthCheckNodePort") or 0))
        try:
            chosen = self.pools.ports.pick(self.draw(), self.taken_ports | asked)
        except RangeFull as error:
            raise _internal(f"{failed}: {error.message}", error.hint) from None
        self.dynamic.add(chosen)
        self.taken_ports.add(chosen)
        return chosen

    def _refuse_duplicates(self, all_ports: list[Object]) -> None:
        """One (protocol, node port) twice: on creation the field's fault, on update the whole request's."""
        seen: set[tuple[str, int]] = set()
        for index, port in enumerate(all_ports):
            if not port.get("nodePort"):
                continue
            key = (str(port.get("protocol") or "TCP"), int(port["nodePort"]))
            if key in seen and self.old is not None:
                raise _internal(f"duplicate nodePort: {key[0]} {key[1]}", FREE_PORT)
            if key in seen:
                cause = Cause(f"spec.ports[{index}].nodePort", "FieldValueDuplicate", f"Duplicate value: {key[1]}")
                raise _invalid(self.service, cause, FREE_PORT)
            seen.add(key)


def _invalid(service: Object, cause: Cause, hint: str) -> ApiError:
    name = (service.get("metadata") or {}).get("name") or ""
    return ApiError(
        422,
        "Invalid",
        f'Service "{name}" is invalid: {cause.field}: {cause.message}',
        details={"name": name, "kind": "Service"},
        causes=(cause,),
        hint=hint,
    )


def _internal(message: str, hint: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", hint=hint)


def ip_address_object(address: Address, namespace: str, name: str) -> Object:
    """The IPAddress that stands for a Service's ClusterIP in the store."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": str(address),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": FAMILIES[address.version],
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": namespace, "name": name}},
    }
