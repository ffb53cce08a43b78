"""Which addresses may be given: the pools in memory, held to what the store has of ServiceCIDRs and IPAddresses."""

import asyncio
from dataclasses import dataclass, field
from ipaddress import ip_address

from clusterip.allocation.pools import Pools, networks
from clusterip.allocation.shape import addresses
from clusterip.apiserver import documents
from clusterip.apiserver.services import ADDRESSES, NODE_PORTS
from clusterip.model.resources import SERVICE_CIDRS, SERVICES
from clusterip.model.status import Object
from clusterip.store.base import Store


@dataclass(frozen=True, slots=True)
class Ranges:
    store: Store
    pools: Pools
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set when a ServiceCIDR was written

    async def load(self) -> None:
        """At start: the ranges, then all that is held in them."""
        await self.reread()
        for item in (await self.store.list(ADDRESSES)).items:
            self.pools.hold(ip_address(item.key.removeprefix(ADDRESSES)))
        for item in (await self.store.list(NODE_PORTS)).items:
            self.pools.hold_port(int(item.key.removeprefix(NODE_PORTS)))

    async def reread(self) -> None:
        """After a change of any ServiceCIDR. A range shared by several stays open while one of them is."""
        usable: list[str] = []
        closed: list[str] = []
        for item in (await self.store.list(f"/{SERVICE_CIDRS.qualified}/")).items:
            obj = documents.decode(item)
            (usable if is_ready(obj) else closed).extend((obj.get("spec") or {}).get("cidrs") or ())
        self.pools.serve(networks(usable), networks(closed))
        self.changed.set()

    async def address_changed(self, obj: Object, *, removed: bool) -> None:
        """An IPAddress that somebody wrote or removed by hand. One that a Service still has stays held: the repair
        loop will write it again."""
        address = ip_address(obj["metadata"]["name"])
        if not removed:
            self.pools.hold(address)
            return
        parent = (obj.get("spec") or {}).get("parentRef") or {}
        key = f"/{SERVICES.qualified}/{parent.get('namespace', '')}/{parent.get('name', '')}"
        owner = await self.store.get(key)
        if owner is None or address not in addresses(documents.decode(owner)):
            self.pools.drop(address)


def is_ready(service_cidr: Object) -> bool:
    conditions = (service_cidr.get("status") or {}).get("conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return ready and not service_cidr["metadata"].get("deletionTimestamp")
