"""How a cluster stands: its processes, what the API holds, and what each node's proxy last did."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address

from clusterip.allocation.bands import Bands, address_bands, port_bands
from clusterip.client.api import Api
from clusterip.client.kubeconfig import load
from clusterip.errors import ClusterIPError
from clusterip.lab.plan import Plan
from clusterip.lab.processes import alive
from clusterip.lab.proxies import proxy_status
from clusterip.lab.state import ComponentStatus, State
from clusterip.lab.wait import is_ready
from clusterip.model.objects import EndpointSlice, IPAddress, Node, Pod, Service
from clusterip.model.resources import ENDPOINT_SLICES, IP_ADDRESSES, NODES, PODS, SERVICES
from clusterip.model.status import Object

TIMEOUT = 6.0  # seconds the API server may take for all that is asked


@dataclass(frozen=True, slots=True)
class ComponentLine:
    name: str
    alive: bool
    pid: int  # 0: none
    since: float  # Unix time of the last start
    restarts: int
    last_end: str


@dataclass(frozen=True, slots=True)
class BandUse:
    """How much of a band of a range is given out."""

    range: str  # "10.96.0.0/16", "30000-32767"
    band: str  # "static", "dynamic"
    used: int
    available: int


@dataclass(frozen=True, slots=True)
class NodeLine:
    name: str
    addresses: tuple[str, ...]
    ready: bool
    pods: int
    proxy: Object  # what its /status says
    proxy_error: str = ""  # why it says nothing

    @property
    def trouble(self) -> str:
        """Why the proxy does not keep the node's rules current; "": it does."""
        failed = str(self.proxy.get("lastError") or "")
        return self.proxy_error or (f"its last sync failed: {failed}" if failed else "")


@dataclass(frozen=True, slots=True)
class ApiLine:
    server: str
    revision: str
    services: int
    slices: int
    endpoints: int  # ready ones
    bands: tuple[BandUse, ...]


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    supervisor: bool
    components: tuple[ComponentLine, ...]
    api: ApiLine | None
    api_error: str
    nodes: tuple[NodeLine, ...]

    @property
    def well(self) -> bool:
        """Everything lives, every node is ready, and its proxy answers and keeps the rules current."""
        return (
            self.supervisor
            and self.api is not None
            and all(component.alive for component in self.components)
            and all(node.ready and not node.trouble for node in self.nodes)
        )


async def report(plan: Plan, state: State) -> Report:
    supervision = state.supervision()
    recorded = supervision.components if supervision is not None else ()
    proxies = asyncio.gather(*(proxy_status(plan, node) for node in plan.node_names))
    api: ApiLine | None = None
    nodes: dict[str, Node] = {}
    pods: Counter[str] = Counter()
    error = ""
    try:
        async with (
            Api(load(str(state.kubeconfig)), user_agent="clusterip-status") as client,
            asyncio.timeout(TIMEOUT),
        ):
            api = await _api(client, plan, load(str(state.kubeconfig)).server)
            nodes = {n.metadata.name: n for n in (await client.list(NODES, Node)).items}
            pods.update(p.spec.node_name for p in (await client.list(PODS, Pod)).items)
    except (ClusterIPError, TimeoutError) as failed:
        error = failed.message if isinstance(failed, ClusterIPError) else "it does not answer"
    lines = [
        NodeLine(name, plan.node_ips(name), name in nodes and is_ready(nodes[name]), pods[name], *said)
        for name, said in zip(plan.node_names, await proxies, strict=True)
    ]
    return Report(
        name=plan.name,
        supervisor=supervision is not None and alive(supervision.supervisor),
        components=tuple(_component(status) for status in recorded),
        api=api,
        api_error=error,
        nodes=tuple(lines),
    )


def _component(status: ComponentStatus) -> ComponentLine:
    return ComponentLine(
        name=status.name,
        alive=alive(status.process),
        pid=status.process.pid if status.process else 0,
        since=status.since,
        restarts=status.restarts,
        last_end=status.last_end,
    )


async def _api(api: Api, plan: Plan, server: str) -> ApiLine:
    services = await api.list(SERVICES, Service)
    slices = (await api.list(ENDPOINT_SLICES, EndpointSlice)).items
    addresses = (await api.list(IP_ADDRESSES, IPAddress)).items
    return ApiLine(
        server=server,
        revision=services.resource_version,
        services=len(services.items),
        slices=len(slices),
        endpoints=sum(e.conditions.ready is not False for piece in slices for e in piece.endpoints or ()),
        bands=band_use(plan, [a.metadata.name for a in addresses], services.items),
    )


def band_use(plan: Plan, addresses: list[str], services: "tuple[Service, ...] | list[Service]") -> tuple[BandUse, ...]:
    """How full the ranges are, by what the API's objects hold."""
    held = [ip_address(a) for a in addresses]
    first, last = (int(part) for part in plan.node_ports.split("-"))
    ports = {p.node_port for s in services for p in s.spec.ports or () if p.node_port}
    ports |= {s.spec.health_check_node_port for s in services if s.spec.health_check_node_port}
    return (
        *(
            use
            for network in plan.service_ranges
            for use in _uses(str(network), address_bands(network), [int(a) for a in held if a in network])
        ),
        *_uses(plan.node_ports, port_bands(first, last), sorted(p for p in ports if first <= p <= last)),
    )


def _uses(name: str, bands: Bands, held: list[int]) -> tuple[BandUse, BandUse]:
    static = sum(number < bands.dynamic for number in held)
    dynamic = len(held) - static
    return (
        BandUse(name, "static", static, bands.dynamic - bands.first - static),
        BandUse(name, "dynamic", dynamic, bands.last - bands.dynamic + 1 - dynamic),
    )


def document(found: Report) -> Object:
    """For `-o json`."""
    now = time.time()
    return {
        "name": found.name,
        "well": found.well,
        "supervisor": found.supervisor,
        "components": [
            {
                "name": c.name,
                "alive": c.alive,
                "pid": c.pid,
                "seconds": round(now - c.since, 1),
                "restarts": c.restarts,
                "lastEnd": c.last_end,
            }
            for c in found.components
        ],
        "api": _api_document(found),
        "nodes": [
            {
                "name": n.name,
                "addresses": list(n.addresses),
                "ready": n.ready,
                "pods": n.pods,
                "proxy": n.proxy or None,
                "proxyError": n.proxy_error,
            }
            for n in found.nodes
        ],
    }


def _api_document(found: Report) -> Object:
    if found.api is None:
        return {"error": found.api_error}
    return {
        "server": found.api.server,
        "revision": found.api.revision,
        "services": found.api.services,
        "endpointSlices": found.api.slices,
        "readyEndpoints": found.api.endpoints,
        "ranges": [
            {"range": b.range, "band": b.band, "used": b.used, "available": b.available} for b in found.api.bands
        ],
    }
