"""A real cluster with the pods and clients of a matrix: changes it, waits until the kernels follow, asks."""

import asyncio
import ipaddress
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Cluster, run
from tests.e2e.matrix import backends, judging, outside, world
from tests.e2e.matrix.backend import HEALTH
from tests.e2e.matrix.drawing import ADMIN, NAMESPACE, Document, Drawn, Spot
from tests.e2e.matrix.world import Answer, Client, Frontend, Setting

from clusterip.client.api import Api
from clusterip.client.kubeconfig import load
from clusterip.kernel import netns
from clusterip.lab.check.plan import World
from clusterip.lab.check.run import read
from clusterip.lab.proxies import follows, proxy_status
from clusterip.lab.state import existing
from clusterip.model import objects, resources
from clusterip.model.status import ApiError
from clusterip.services.resolve import SERVICE_NAME_LABEL
from clusterip.services.route import Source

PROGRAM = Path(__file__).with_name("client.py")
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"  # not on those made by hand
PATIENCE = 120.0  # seconds until pods, slices and kernels follow
ZONES = {"node-1": "east", "node-2": "east", "node-3": "west"}


class Stage:
    def __init__(self, cluster: Cluster, api: Api, mode: str, files: Path) -> None:
        self.cluster, self.api, self.mode, self.files = cluster, api, mode, files
        self.state, self.plan = existing(cluster.name)
        self.wanted_pods: dict[str, bool] = {}  # name -> ready; the flock's by its color
        self._ghosts: dict[tuple[str, int, str], Frontend] = {}  # every frontend there ever was
        self._rounds = 0

    async def create(self, documents: Iterable[Document]) -> None:
        for document in documents:
            resource = {"Pod": resources.PODS, "Deployment": resources.DEPLOYMENTS}[document["kind"]]
            await self.api.create(resource, NAMESPACE, document)

    async def put(self, drawn: Iterable[Drawn]) -> None:
        """Make these Services, or make them anew under their names."""
        for one in drawn:
            await self._put(resources.SERVICES, one.service)
            if one.service["spec"]["type"] == "LoadBalancer":
                status = {"status": {"loadBalancer": {"ingress": list(one.ingress)}}}
                await self.api.patch(resources.SERVICES, NAMESPACE, one.name, status, subresource="status")
            for piece in one.slices:
                await self._put(resources.ENDPOINT_SLICES, piece)

    async def _put(self, resource: resources.Resource, document: Document) -> None:
        name = document["metadata"]["name"]
        try:
            await self.api.create(resource, NAMESPACE, document)
        except ApiError as error:
            if error.code != 409:
                raise
            await self.api.update(resource, NAMESPACE, name, document)

    async def remove(self, names: Iterable[str]) -> None:
        for name in names:
            await self.api.delete(resources.SERVICES, NAMESPACE, name)

    async def tell(self, pod: str, word: str) -> None:
        """ "fail" or "ok", to a backend."""
        url = f"http://127.0.0.1:{HEALTH}/{word}"
        await asyncio.to_thread(self.cluster.exec, f"{NAMESPACE}/{pod}", "curl", "-sf", "-X", "POST", url)

    async def spots(self) -> tuple[Spot, ...]:
        """Where hand-made slices may lead."""
        now = await read(self.api)
        ips = world.pod_ips(now)
        return tuple(
            Spot(b.node, ZONES[b.node], dict(ips[b.name])) for b in backends.BACKENDS if b.name not in backends.LEAVING
        )

    async def settle(self, ready: Callable[[Mapping[str, objects.Pod]], str]) -> World:
        """Until `ready` has nothing to complain of, slices say what pods say, and kernels what slices say."""

        async def missing() -> str:
            now = await read(self.api)
            pods = {p.metadata.name: p for p in now.pods if p.metadata.namespace == NAMESPACE}
            return ready(pods) or disagreement(now)

        await until(missing)
        for resource in (resources.SERVICES, resources.ENDPOINT_SLICES):
            # Each kind has a stream of its own, in order: a node that has this change has all before it.
            mark = {"metadata": {"annotations": {"round": str(time.monotonic_ns())}}}
            name = (await self._sentinel())[resource]
            changed: Any = await self.api.patch(resource, NAMESPACE, name, mark)
            revision = int(changed["metadata"]["resourceVersion"])
            await until(lambda: self._behind(resource.kind, revision))  # noqa: B023  # awaited before the next
        return await read(self.api)

    async def _sentinel(self) -> Mapping[resources.Resource, str]:
        service = {"metadata": {"name": "sentinel"}, "spec": {"ports": [{"port": 1}]}}
        labels = {SERVICE_NAME_LABEL: "sentinel"}
        piece = {"metadata": {"name": "sentinel", "labels": labels}, "addressType": self.plan_family(), "endpoints": []}
        for resource, document in ((resources.SERVICES, service), (resources.ENDPOINT_SLICES, piece)):
            try:
                await self.api.create(resource, NAMESPACE, document)
            except ApiError as error:
                if error.code != 409:
                    raise
        return {resources.SERVICES: "sentinel", resources.ENDPOINT_SLICES: "sentinel"}

    def plan_family(self) -> str:
        return "IPv4"

    async def _behind(self, kind: str, revision: int) -> str:
        told = await asyncio.gather(*(proxy_status(self.plan, node) for node in self.plan.node_names))
        named = zip(self.plan.node_names, told, strict=True)
        return ", ".join(f"{n}: {why or 'behind'}" for n, (said, why) in named if not follows(said, kind, revision))

    async def setting(self, now: World) -> Setting:
        nodes = world.nodes(now)
        ips = world.pod_ips(now)
        visitors = [Client(name, Source.POD, f"node-{name[-1]}", ips[name]) for name in backends.VISITORS]
        own = [b for b in backends.BACKENDS if b.name in ("red-1", "green-1", "green-2")]
        inside = [Client(b.name, Source.NODE if b.on_host else Source.POD, b.node, ips[b.name]) for b in own]
        on_nodes = [Client(node.name, Source.NODE, node.name, node.ips) for node in nodes]
        stranger = Client("outside", Source.OUTSIDE, "", {f: outside.ADDRESSES[f] for f in nodes[0].ips})
        cidrs = await self.api.list(resources.SERVICE_CIDRS, objects.ServiceCIDR)
        ranges = tuple(cidr for item in cidrs.items for cidr in item.spec.cidrs)
        return Setting(
            mode=self.mode,
            world=now,
            nodes=nodes,
            clients=(*visitors, *inside, *on_nodes, stranger),
            entrances=[(ipaddress.ip_network(to), n.name) for to, n in outside.entrances(ranges, nodes)],
            service_cidrs=ranges,
            backends=names(now),
        )

    async def look(self, setting: Setting) -> judging.Report:
        """Ask everybody everything."""
        for frontend in setting.frontends(NAMESPACE):
            self._ghosts[frontend.address, frontend.port, frontend.protocol] = frontend
        cells = list(setting.cells(sorted(self._ghosts.values())))
        probes = judging.probes(cells)
        self._rounds += 1
        asked = await asyncio.gather(*(self._ask(client, cells, probes, setting) for client in setting.clients))
        return judging.judge(cells, {index: counts for found in asked for index, counts in found.items()})

    async def _ask(
        self, client: Client, cells: Sequence[world.Cell], probes: Sequence[judging.Probe], setting: Setting
    ) -> Mapping[int, Counter[Answer]]:
        own = [probe for probe in probes if cells[probe.index].client is client]
        path = self.files / f"{client.name}-{self._rounds}.json"
        # In IPVS mode now and then an answer is taken for that of another connection (docs/dataplanes/ipvs.md): of ten
        # thousand one or two. Whoever hears nothing tries again; if that is silent too, it is another reason.
        again = int(self.mode == "ipvs")
        given = {"port": 5000 + 8000 * self._rounds, "again": again, "probes": [p.words(cells[p.index]) for p in own]}
        path.write_text(json.dumps(given))
        argv = [sys.executable, "-E", str(PROGRAM), str(path)]
        if client.source is Source.OUTSIDE:
            argv = ["ip", "netns", "exec", self.plan.netns(outside.LINK), *argv]
            done = await asyncio.to_thread(run, argv, timeout=600)
        else:
            target = client.name if client.name == client.node else f"{NAMESPACE}/{client.name}"
            done = await asyncio.to_thread(self.cluster.clusterip, "exec", target, "--", *argv, timeout=600)
        rows = json.loads(done.stdout)
        return {
            probe.index: Counter({judging.answer(line, setting): n for line, n in row.items()})
            for probe, row in zip(own, rows, strict=True)
        }


def names(now: World) -> Mapping[tuple[str, int], str]:
    """What the backends call themselves, by address and port. A node's address is that of the pod on it."""
    ports = {b.name: b.port for b in backends.BACKENDS}
    found = {}
    for pod in now.pods:
        if pod.metadata.namespace == NAMESPACE and "color" in pod.metadata.labels:
            for ip in world.pod_ips(now).get(pod.metadata.name, {}).values():
                for port in (ports.get(pod.metadata.name, 8080), ADMIN):
                    found[ip, port] = f"{pod.metadata.name}:{port}"
    return found


def disagreement(now: World) -> str:
    """A Service whose slices do not say what its pods say; "" if there is none."""
    pods = [p for p in now.pods if p.status.pod_ip and p.status.phase not in ("Succeeded", "Failed")]
    for service in now.services:
        if service.metadata.namespace != NAMESPACE or not service.spec.selector:
            continue
        chosen = [
            p
            for p in pods
            if p.metadata.namespace == NAMESPACE and service.spec.selector.items() <= p.metadata.labels.items()
        ]
        published = service.spec.publish_not_ready_addresses
        wanted = {(i.ip, published or is_ready(p)) for p in chosen for i in p.status.pod_ips
                  if world.family_of(i.ip) in service.spec.ip_families}  # fmt: skip
        found = {
            (e.addresses[0], e.conditions.ready is not False)
            for piece in now.slices_of(service)
            if MANAGED_BY in piece.metadata.labels
            for e in piece.endpoints or ()
        }
        if found != wanted:
            return f"{service.metadata.name}: pods {sorted(wanted)}, slices {sorted(found)}"
    return ""


def is_ready(pod: objects.Pod) -> bool:
    return not pod.metadata.deletion_timestamp and any(
        c.type == "Ready" and c.status == "True" for c in pod.status.conditions
    )


async def until(missing: Callable[[], Awaitable[str]]) -> None:
    end = time.monotonic() + PATIENCE
    while what := await missing():
        assert time.monotonic() < end, f"after {PATIENCE:.0f} s still: {what}"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def staged(cluster: Cluster, mode: str, files: Path) -> AsyncIterator[Stage]:
    """With the pods, the outside client and its routes. All of it is gone afterwards."""
    async with Api(load(cluster.kubeconfig), user_agent="matrix") as api:
        stage = Stage(cluster, api, mode, files)
        await api.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        try:
            now = await read(api)
            nodes = world.nodes(now)
            for node in nodes:
                await _label(api, node.name, ZONES[node.name])
            cidrs = await api.list(resources.SERVICE_CIDRS, objects.ServiceCIDR)
            await outside.enter(stage.plan, nodes, [cidr for item in cidrs.items for cidr in item.spec.cidrs])
            await stage.create(backends.pods({node.name: tuple(node.ips.values()) for node in nodes}))
            await stage.create([backends.flock(2)])
            yield stage
        finally:
            for backend in backends.BACKENDS:
                with suppress(ApiError):  # it may be gone
                    await api.delete(resources.PODS, NAMESPACE, backend.name, grace_seconds=0)
            await api.delete(resources.NAMESPACES, "", NAMESPACE)
            for name in ZONES:
                await _label(api, name, None)
            netns.delete(stage.plan.netns(outside.LINK))


async def _label(api: Api, node: str, zone: str | None) -> None:
    labels = {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}
    await api.patch(resources.NODES, "", node, labels)
