"""The node says that it is there: its Node object, and a Lease that it renews.

The Lease belongs to the Node. When somebody deletes the Node, the garbage collector takes the Lease too, the next
renewal fails, and the node registers anew.
"""

import asyncio
import logging
import os
import platform
import time
from datetime import UTC, datetime
from typing import Never

from clusterip import __version__
from clusterip.client.api import Api, PatchKind
from clusterip.client.mirror import Backoff
from clusterip.errors import ClusterIPError
from clusterip.model.resources import LEASES, NODES, Resource
from clusterip.model.status import ApiError, Object
from clusterip.node.settings import Settings
from clusterip.node.status import rfc3339

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_EVERY = 10.0  # seconds between two renewals of the Lease
STATUS_EVERY = 300.0  # seconds between two heartbeats in the Node's status; the Lease is what counts
KUBELET_VERSION = "v1.36.0"
POD_LIMIT = 250
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


async def run(api: Api, settings: Settings) -> Never:
    """For ever; what the API server refuses, or does not answer, is tried again."""
    started, next_status, owner, backoff = time.time(), 0.0, "", Backoff()
    while True:
        try:
            if time.monotonic() >= next_status:
                owner = await _register(api, settings, started)
                next_status = time.monotonic() + STATUS_EVERY
            await api.patch(LEASES, LEASE_NAMESPACE, settings.node_name, _lease(settings, owner))
        except ClusterIPError as error:
            next_status = 0.0  # who has forgotten our Lease has perhaps forgotten us
            log.warning("node.registration.failed node=%s error=%r", settings.node_name, error.message)
            await asyncio.sleep(backoff.delay())
        else:
            backoff.reset()
            await asyncio.sleep(RENEW_EVERY)


async def _register(api: Api, settings: Settings, started: float) -> str:
    """The Node's uid."""
    await _create_if_missing(api, NODES, "", node(settings))
    body = {"metadata": {"labels": labels(settings)}, "spec": _spec(settings)}
    await api.patch(NODES, "", settings.node_name, body)
    status = node_status(settings, rfc3339(started), rfc3339(time.time()))
    # The merge key of addresses is their type, of which there may be two.
    said = {"status": {**status, "addresses": [{"$patch": "replace"}, *status["addresses"]]}}
    found = await api.patch(NODES, "", settings.node_name, said, subresource="status", kind=PatchKind.STRATEGIC)
    owner: str = found["metadata"]["uid"]
    await _create_if_missing(api, LEASES, LEASE_NAMESPACE, _lease(settings, owner))
    return owner


def _lease(settings: Settings, owner: str) -> Object:
    node = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": settings.node_name, "uid": owner}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": settings.node_name, "ownerReferences": [node]},
        "spec": {"holderIdentity": settings.node_name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }


async def _create_if_missing(api: Api, resource: Resource, namespace: str, body: Object) -> None:
    try:
        await api.create(resource, namespace, body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def node(settings: Settings) -> Object:
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {"name": settings.node_name, "labels": labels(settings)},
        "spec": _spec(settings),
    }


def _spec(settings: Settings) -> Object:
    ranges = [str(network) for network in settings.pod_cidrs]
    return {"podCIDR": ranges[0], "podCIDRs": ranges}


def labels(settings: Settings) -> dict[str, str]:
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return {
        "kubernetes.io/hostname": settings.node_name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        **settings.labels,
    }


def node_status(settings: Settings, started: str, now: str) -> Object:
    """`started`: since when the node is ready; both RFC 3339."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    capacity = {"cpu": str(os.cpu_count() or 1), "memory": f"{pages * page // 1024}Ki", "pods": str(POD_LIMIT)}
    release = (
        platform.freedesktop_os_release().get("PRETTY_NAME", "Linux") if os.path.exists("/etc/os-release") else "Linux"
    )
    return {
        "addresses": [
            *({"type": "InternalIP", "address": address} for address in settings.node_ips),
            {"type": "Hostname", "address": settings.node_name},
        ],
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [
            _condition("MemoryPressure", "False", "KubeletHasSufficientMemory", started, now),
            _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", started, now),
            _condition("PIDPressure", "False", "KubeletHasSufficientPID", started, now),
            _condition("Ready", "True", "KubeletReady", started, now),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.serving.port}} if settings.serving else {},
        "nodeInfo": {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "bootID": "",
            "containerRuntimeVersion": f"clusterip://{__version__}",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": KUBELET_VERSION,
            "kubeletVersion": KUBELET_VERSION,
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": release,
            "systemUUID": "",
        },
    }


def _condition(kind: str, status: str, reason: str, since: str, now: str) -> Object:
    message = {"Ready": "the node agent is ready"}.get(kind, "")
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }
