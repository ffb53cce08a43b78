"""What a cluster has before anybody asks: its namespaces, its Service range, and the `kubernetes` Service in front of
the API servers. Written at start and kept true every ten seconds, as kube-apiserver does.
"""

from dataclasses import dataclass
from ipaddress import ip_address

from clusterip.allocation.bands import Network, address_bands
from clusterip.apiserver import documents
from clusterip.apiserver.cidrs import set_ready
from clusterip.apiserver.events import warn
from clusterip.apiserver.registry import PROTECTED, Registry
from clusterip.apiserver.requests import Target
from clusterip.model.resources import ENDPOINT_SLICES, ENDPOINTS, NAMESPACES, SERVICE_CIDRS, SERVICES, Resource
from clusterip.model.status import ApiError, Object

EVERY = 10.0  # seconds
NAME = "kubernetes"


@dataclass(frozen=True, slots=True)
class Advertised:
    """Where clients inside the cluster reach this API server."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Bootstrap:
    registry: Registry
    cidrs: tuple[Network, ...]  # of --service-cluster-ip-range, the primary first
    advertised: Advertised

    async def run(self) -> None:
        """Whatever is missing is written, whatever has drifted is put right. Raises ApiError."""
        for name in PROTECTED:
            await self._ensure(Target(NAMESPACES, "", name), _object(NAMESPACES, name))
        await self._service_cidr()
        await self._service()
        await self._endpoints()

    async def _service_cidr(self) -> None:
        target = Target(SERVICE_CIDRS, "", NAME)
        wanted = [str(cidr) for cidr in self.cidrs]
        await self._ensure(target, {**_object(SERVICE_CIDRS, NAME), "spec": {"cidrs": wanted}})
        current = documents.decode(await self.registry.get(target))
        if current["metadata"].get("deletionTimestamp"):
            return
        has = current["spec"]["cidrs"]
        if len(has) == 1 and len(wanted) == 2 and has[0] == wanted[0]:  # the cluster has become dual-stack
            await self.registry.update(target, lambda old: {**old, "spec": {"cidrs": wanted}})
        elif has != wanted:
            message = f"default ServiceCIDR {has} does not match the flag's {wanted}"
            await warn(self.registry, current, "KubernetesDefaultServiceCIDRInconsistent", message)
            return
        conditions = (current.get("status") or {}).get("conditions") or ()
        if not any(one.get("type") == "Ready" for one in conditions):
            await set_ready(self.registry, NAME, "Kubernetes default Service CIDR is ready")

    async def _service(self) -> None:
        primary = self.cidrs[0]
        first = address_bands(primary).first
        address = ip_address(first) if primary.version == 4 else ip_address(first.to_bytes(16, "big"))
        service = _object(SERVICES, NAME, "default")
        service["metadata"]["labels"] = {"component": "apiserver", "provider": "kubernetes"}
        service["spec"] = {
            "type": "ClusterIP",
            "clusterIP": str(address),
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": self.advertised.port}],
        }
        target = Target(SERVICES, "default", NAME)
        await self._ensure(target, service)
        await self._converge(target, ("ports",), service["spec"], "spec")

    async def _endpoints(self) -> None:
        """Endpoints and slice list the one API server there is. No controller makes them: no selector says how.
        One that listens on loopback only cannot be reached by pods, and is not listed."""
        address, port = self.advertised.address, self.advertised.port
        reachable = not ip_address(address).is_loopback
        ports = [{"name": "https", "port": port, "protocol": "TCP"}]
        mirror = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        endpoints = _object(ENDPOINTS, NAME, "default")
        endpoints["metadata"]["labels"] = mirror
        endpoints["subsets"] = [{"addresses": [{"ip": address}], "ports": ports}] if reachable else []
        await self._ensure(Target(ENDPOINTS, "default", NAME), endpoints)
        await self._converge(Target(ENDPOINTS, "default", NAME), ("subsets",), endpoints)
        piece = _object(ENDPOINT_SLICES, NAME, "default")
        piece["metadata"]["labels"] = {"kubernetes.io/service-name": NAME}
        piece["addressType"] = "IPv6" if ":" in address else "IPv4"
        piece["endpoints"] = [{"addresses": [address], "conditions": {"ready": True}}] if reachable else []
        piece["ports"] = ports
        await self._ensure(Target(ENDPOINT_SLICES, "default", NAME), piece)
        await self._converge(Target(ENDPOINT_SLICES, "default", NAME), ("endpoints", "ports"), piece)

    async def _ensure(self, target: Target, wanted: Object) -> None:
        if await self.registry.store.get(target.key) is None:
            try:
                await self.registry.create(Target(target.resource, target.namespace), wanted)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    async def _converge(self, target: Target, fields: tuple[str, ...], wanted: Object, within: str = "") -> None:
        """Puts the named fields right, and leaves all else to whoever wrote it."""

        def corrected(old: Object) -> Object:
            part = {field: wanted[field] for field in fields}
            return {**old, within: {**old[within], **part}} if within else {**old, **part}

        await self.registry.update(target, corrected)


def _object(resource: Resource, name: str, namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
