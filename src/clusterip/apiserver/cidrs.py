"""The life of ServiceCIDRs: a finalizer while they live, a Ready condition, and a deletion that waits until no Service
would lose its address by it. Source: conformance 2.4.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address

from clusterip.allocation.bands import Network, address_bands
from clusterip.allocation.pool import Address
from clusterip.allocation.pools import networks
from clusterip.apiserver import documents
from clusterip.apiserver.registry import Registry
from clusterip.apiserver.requests import Target
from clusterip.apiserver.services import ADDRESSES
from clusterip.errors import ClusterIPError
from clusterip.model.resources import SERVICE_CIDRS
from clusterip.model.status import ApiError, Object

log = logging.getLogger("clusterip.apiserver")

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
DEFAULT = "kubernetes"  # the one that comes from the flag
LINGER = 10.0  # seconds from the deletion until it may go: whoever allocates must have seen it
EVERY = 1.0  # seconds between two looks, when nothing wakes us
_MANAGED = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io")
_READY = "Kubernetes Service CIDR is ready"
_READY_DEFAULT = "Kubernetes default Service CIDR is ready"
_BLOCKED = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"


async def keep_service_cidrs(registry: Registry) -> None:
    """Never returns."""
    while True:
        registry.ranges.changed.clear()
        try:
            await step(registry)
        except ClusterIPError as error:
            log.warning("apiserver.servicecidrs.failed error=%s", error.message)
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY):
                await registry.ranges.changed.wait()


async def step(registry: Registry) -> None:
    """One look at all of them."""
    listed = await registry.store.list(f"/{SERVICE_CIDRS.qualified}/")
    known = [documents.decode(item) for item in listed.items]
    for obj in known:
        name = obj["metadata"]["name"]
        with suppress(ApiError):  # somebody else wrote or removed it just now: the next look sees
            if not obj["metadata"].get("deletionTimestamp"):
                await _settle(registry, obj)
            elif _covered(obj, known) or not await _needed(registry, obj, known):
                if _age(obj, registry.now()) >= LINGER:
                    await registry.update(Target(SERVICE_CIDRS, "", name), _without_finalizer)
            else:
                await set_ready(registry, name, _BLOCKED, ready=False, reason="Terminating")


async def _settle(registry: Registry, obj: Object) -> None:
    name = obj["metadata"]["name"]
    if FINALIZER not in (obj["metadata"].get("finalizers") or ()):
        await registry.update(Target(SERVICE_CIDRS, "", name), _with_finalizer)
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if not any(one.get("type") == "Ready" for one in conditions):
        await set_ready(registry, name, _READY_DEFAULT if name == DEFAULT else _READY)


def _with_finalizer(old: Object) -> Object:
    metadata = old["metadata"]
    if metadata.get("deletionTimestamp"):
        return old
    return {**old, "metadata": {**metadata, "finalizers": [*(metadata.get("finalizers") or ()), FINALIZER]}}


def _without_finalizer(old: Object) -> Object:
    left = [one for one in old["metadata"].get("finalizers") or () if one != FINALIZER]
    return {**old, "metadata": {**old["metadata"], "finalizers": left}}


def _networks(obj: Object) -> Sequence[Network]:
    return networks((obj.get("spec") or {}).get("cidrs") or ())


def _others(obj: Object, known: Sequence[Object]) -> Sequence[Network]:
    """The ranges of all others that stay."""
    name = obj["metadata"]["name"]
    staying = (o for o in known if o["metadata"]["name"] != name and not o["metadata"].get("deletionTimestamp"))
    return [cidr for other in staying for cidr in _networks(other)]


def _covered(obj: Object, known: Sequence[Object]) -> bool:
    """Every range of it lies in one of another."""
    others = _others(obj, known)
    return all(any(_within(cidr, other) for other in others) for cidr in _networks(obj))


def _within(cidr: Network, other: Network) -> bool:
    return cidr.version == other.version and cidr.network_address in other and cidr.broadcast_address in other


async def _needed(registry: Registry, obj: Object, known: Sequence[Object]) -> bool:
    """Some Service's address lies in it and in no other."""
    own, others = _networks(obj), _others(obj, known)
    label, value = _MANAGED
    for item in (await registry.store.list(ADDRESSES)).items:
        if (documents.head(item).metadata.labels or {}).get(label) != value:
            continue
        address = ip_address(item.key.removeprefix(ADDRESSES))
        if _holds(own, address) and not _holds(others, address):
            return True
    return False


def _holds(cidrs: Sequence[Network], address: Address) -> bool:
    return any(address in cidr and int(address) in address_bands(cidr) for cidr in cidrs)


def _age(obj: Object, now: datetime) -> float:
    """Seconds since its deletion was asked for."""
    return now.timestamp() - datetime.fromisoformat(obj["metadata"]["deletionTimestamp"]).timestamp()


async def set_ready(registry: Registry, name: str, message: str, *, ready: bool = True, reason: str = "") -> None:
    """Writes a ServiceCIDR's Ready condition, if that changes it."""

    def conditioned(old: Object) -> Object:
        status = old.get("status") or {}
        others = [one for one in status.get("conditions") or () if one.get("type") != "Ready"]
        before: Object = next((one for one in status.get("conditions") or () if one.get("type") == "Ready"), {})
        condition = {"type": "Ready", "status": "True" if ready else "False", "message": message, "reason": reason}
        changed = before.get("status") != condition["status"]
        since = registry.stamp().time() if changed else before.get("lastTransitionTime")
        return {**old, "status": {**status, "conditions": [*others, {**condition, "lastTransitionTime": since}]}}

    await registry.update(Target(SERVICE_CIDRS, "", name, "status"), conditioned)
