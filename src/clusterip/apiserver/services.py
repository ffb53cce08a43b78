"""What a write of a Service brings with it: families, addresses, node ports, and the keys that stand for them.

An address is held by its IPAddress object, a node port by a key of its own, both in the commit that writes the
Service; the pools in memory only say which ones are worth trying. The order is the API's: families, addresses, ports,
then validation (conformance 2.6).
"""

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from ipaddress import ip_address

from clusterip.allocation.plan import Plan, ip_address_object, plan
from clusterip.allocation.pool import Address
from clusterip.allocation.pools import Hold, Pools
from clusterip.apiserver import documents
from clusterip.apiserver.lifecycle import Stamp
from clusterip.apiserver.metrics import Metrics
from clusterip.apiserver.refusals import forbidden, invalid
from clusterip.model import service_update
from clusterip.model.resources import ENDPOINTS, IP_ADDRESSES, SERVICES
from clusterip.model.status import Object
from clusterip.store.base import Check, Conflict, Delete, Put

NODE_PORTS = "/allocations/nodeports/"
ADDRESSES = f"/{IP_ADDRESSES.qualified}/"


@dataclass(frozen=True, slots=True)
class Claim:
    """An object to be written, and what must be committed with it: of a Service, all it was given. `take` before
    the commit; after it, `settle` or `undo`."""

    obj: Object
    hold: Hold = field(default_factory=Hold)
    checks: tuple[Check, ...] = ()
    writes: tuple[Put | Delete, ...] = ()
    dynamic: frozenset[Address | int] = frozenset()


@dataclass(frozen=True, slots=True)
class Services:
    pools: Pools
    families: Sequence[str]  # of the cluster, the primary first
    metrics: Metrics
    deny_external_ips: bool = False
    draw: Callable[[], float] = field(default=random.random)

    def claim(self, old: Object | None, new: Object, stamp: Stamp) -> Claim:
        """For a creation (`old` None) or an update. Changes nothing yet. Raises ApiError."""
        name = new["metadata"].get("name", "")
        if self.deny_external_ips:
            _deny_external_ips(old, new)
        service = deepcopy(new)
        service_update.carry_over(service, old)
        causes = service_update.infer_families(service, old, tuple(self.families))
        if causes:
            raise invalid(SERVICES, name, causes)
        with self.metrics.allocating(self.pools):
            planned = plan(old, service, self.pools, self.draw)
        return Claim(planned.service, planned.hold, *_keys(planned, stamp), dynamic=planned.dynamic)

    def give_up(self, old: Object) -> Claim:
        """For a deletion: all it holds goes, and the Endpoints of the same name with it."""
        planned = plan(old, None, self.pools, self.draw)
        _, writes = _keys(planned, None)
        metadata = old["metadata"]
        endpoints = Delete(f"/{ENDPOINTS.qualified}/{metadata['namespace']}/{metadata['name']}")
        return Claim(old, planned.hold, (), (*writes, endpoints))

    def take(self, claim: Claim) -> None:
        self.pools.take(claim.hold)

    def settle(self, claim: Claim) -> None:
        self.pools.settle(claim.hold)
        self.metrics.allocated(claim.hold, claim.dynamic, self.pools)

    def undo(self, claim: Claim) -> None:
        self.pools.undo(claim.hold)

    def learn(self, conflict: Conflict) -> None:
        """If somebody holds an address or port that the pools thought free, the next plan will not want it."""
        if conflict.found and conflict.key.startswith(ADDRESSES):
            self.pools.hold(ip_address(conflict.key.removeprefix(ADDRESSES)))
        elif conflict.found and conflict.key.startswith(NODE_PORTS):
            self.pools.hold_port(int(conflict.key.removeprefix(NODE_PORTS)))


def _keys(planned: Plan, stamp: Stamp | None) -> tuple[tuple[Check, ...], tuple[Put | Delete, ...]]:
    """The store's half of a hold. `stamp` is needed when something is taken."""
    hold, metadata = planned.hold, planned.service["metadata"]
    checks: list[Check] = []
    writes: list[Put | Delete] = []
    for address in hold.take_addresses:
        assert stamp is not None
        checks.append(Check(f"{ADDRESSES}{address}", 0))
        document = ip_address_object(address, metadata["namespace"], metadata["name"])
        writes.append(Put(f"{ADDRESSES}{address}", documents.value(stamped(document, stamp))))
    for port in hold.take_ports:
        checks.append(Check(f"{NODE_PORTS}{port}", 0))
        writes.append(Put(f"{NODE_PORTS}{port}", f"{metadata['namespace']}/{metadata['name']}".encode()))
    writes.extend(Delete(f"{ADDRESSES}{address}") for address in hold.release_addresses)
    writes.extend(Delete(f"{NODE_PORTS}{port}") for port in hold.release_ports)
    return tuple(checks), tuple(writes)


def stamped(document: Object, stamp: Stamp) -> Object:
    """An object that the server itself makes, as a creation would have made it."""
    uid = {"uid": stamp.uid_of(document["metadata"]["name"]), "creationTimestamp": stamp.time()}
    return {**document, "metadata": {**document["metadata"], **uid}}


def _deny_external_ips(old: Object | None, new: Object) -> None:
    had = set(((old or {}).get("spec") or {}).get("externalIPs") or ())
    if not set((new.get("spec") or {}).get("externalIPs") or ()) <= had:
        why = "Use of external IPs is denied by admission control"
        raise forbidden(SERVICES, new["metadata"].get("name", ""), why)
