"""The repair loop: every three minutes, what the store holds of addresses and node ports against what the Services
say, and the plan of `allocation.repair` carried out. Source: conformance 2.5.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import Counter

from clusterip.allocation.repair import Repair, Warn, repair_addresses, repair_ports
from clusterip.apiserver import documents
from clusterip.apiserver.events import warn
from clusterip.apiserver.registry import Registry
from clusterip.apiserver.requests import DeleteQuery, Target
from clusterip.apiserver.services import ADDRESSES, NODE_PORTS
from clusterip.errors import ClusterIPError
from clusterip.model.resources import IP_ADDRESSES, SERVICES
from clusterip.model.status import ApiError, Object
from clusterip.store.base import Check, Delete, Put

log = logging.getLogger("clusterip.apiserver")

EVERY = 180.0  # seconds
_AT_ONCE = DeleteQuery(dry_run=False, grace_seconds=None, policy="", uid="", resource_version="")


async def keep_repairing(registry: Registry) -> None:
    """Never returns."""
    leaking: Mapping[int, int] = {}
    while True:
        leaking = await repair(registry, leaking)
        await asyncio.sleep(EVERY)


async def repair(registry: Registry, leaking: Mapping[int, int]) -> Mapping[int, int]:
    """One round. `leaking`, and what is given back for the next round: ports without a user, and for how many
    rounds."""
    metrics = registry.services.metrics
    try:
        await _Round(registry, metrics.ip_repairs).addresses()
    except ClusterIPError as error:
        metrics.ip_repair_failures.inc()
        log.warning("apiserver.repair.failed of=addresses error=%s", error.message)
    try:
        return await _Round(registry, metrics.port_repairs).ports(leaking)
    except ClusterIPError as error:
        metrics.port_repair_failures.inc()
        log.warning("apiserver.repair.failed of=ports error=%s", error.message)
        return leaking


@dataclass(frozen=True, slots=True)
class _Round:
    registry: Registry
    found: Counter

    async def _documents(self, prefix: str) -> list[Object]:
        return [documents.decode(item) for item in (await self.registry.store.list(prefix)).items]

    async def addresses(self) -> None:
        services = await self._documents(f"/{SERVICES.qualified}/")
        held = await self._documents(ADDRESSES)
        now = self.registry.now().timestamp()
        plan = repair_addresses(services, held, self.registry.services.pools, now)
        for document in plan.write_addresses:
            await self._replace(document)
        for name in plan.delete_addresses:
            await self._delete(name)
        await self._tell(plan)

    async def _replace(self, document: Object) -> None:
        """An IPAddress's reference cannot be changed, so a wrong one goes first."""
        await self._delete(document["metadata"]["name"])
        await self.registry.create(Target(IP_ADDRESSES), document)

    async def _delete(self, name: str) -> None:
        try:
            await self.registry.delete(Target(IP_ADDRESSES, "", name), _AT_ONCE)
        except ApiError as error:
            if error.code != 404:
                raise

    async def ports(self, leaking: Mapping[int, int]) -> Mapping[int, int]:
        services = await self._documents(f"/{SERVICES.qualified}/")
        items = (await self.registry.store.list(NODE_PORTS)).items
        held = {int(item.key.removeprefix(NODE_PORTS)): item for item in items}
        pools = self.registry.services.pools
        plan = repair_ports(services, {port: item.value.decode() for port, item in held.items()}, pools, leaking)
        for port, owner in plan.reserve_ports:
            revision = held[port].revision if port in held else 0
            await self.registry.store.commit(
                (Check(f"{NODE_PORTS}{port}", revision),), (Put(f"{NODE_PORTS}{port}", owner.encode()),)
            )
            pools.hold_port(port)
        for port in plan.release_ports:
            key = f"{NODE_PORTS}{port}"
            await self.registry.store.commit((Check(key, held[port].revision),), (Delete(key),))
            pools.ports.release(port)
        await self._tell(plan)
        return plan.leaking or {}

    async def _tell(self, plan: Repair) -> None:
        for one in plan.warnings:
            await self._warn(one)

    async def _warn(self, one: Warn) -> None:
        self.found.labels(one.reason.value).inc()
        log.warning("apiserver.repair reason=%s message=%s", one.reason.value, one.message)
        await warn(self.registry, one.about, one.reason.value, one.message)
