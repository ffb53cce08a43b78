"""Who tries: each node, a pod on each node, and this machine if it has access.

A pod that is no Service's endpoint is a fair witness: a backend that asks its own Service takes another road (a
hairpin). On a node that has no such pod, one is made for the time of the check.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from clusterip.client.api import Api
from clusterip.client.kubeconfig import load
from clusterip.lab.check.plan import World
from clusterip.lab.check.run import Question, check, read
from clusterip.lab.check.values import Client, ClientKind, Report
from clusterip.lab.plan import Plan, prefix
from clusterip.lab.state import State, existing
from clusterip.lab.wait import Waiter
from clusterip.model import objects, resources
from clusterip.model.status import ApiError
from clusterip.node.sandbox import namespace_name

NAMESPACE = "default"
IMAGE = "clusterip/client"


async def check_cluster(name: str, question: Question) -> Report:
    """Raises Unavailable (no such cluster, no answer), BadInput (no such Service), ApiError."""
    state, plan = existing(name)
    async with Api(load(str(state.kubeconfig)), user_agent="clusterip-check") as api:
        world = await read(api)
        found = witnesses(world)
        async with _visitors(api, state, (node for node in plan.node_names if node not in found)) as made:
            return await check(api, clients(plan, {**found, **made}), question)


def clients(plan: Plan, pods: dict[str, objects.Pod]) -> tuple[Client, ...]:
    """`pods`: one a node, by the node's name. The columns of the matrix, nodes first."""
    nodes = [Client(node, ClientKind.NODE, plan.netns(node), node, plan.node_ips(node)) for node in plan.node_names]
    inside = [
        Client(
            f"pod {pod.metadata.namespace}/{pod.metadata.name}",
            ClientKind.POD,
            namespace_name(prefix(plan.name), pod),
            node,
            tuple(ip.ip for ip in pod.status.pod_ips) or (pod.status.pod_ip,),
        )
        for node, pod in sorted(pods.items(), key=lambda item: plan.node_names.index(item[0]))
    ]
    host = [Client("host", ClientKind.HOST, "", plan.node_names[0])] if plan.host_access else []
    return (*nodes, *inside, *host)


def witnesses(world: World) -> dict[str, objects.Pod]:
    """One running pod a node that stands behind no Service; nodes without one are missing."""
    behind = {
        (endpoint.target_ref.namespace, endpoint.target_ref.name)
        for piece in world.slices
        for endpoint in piece.endpoints or ()
        if endpoint.target_ref
    }
    found: dict[str, objects.Pod] = {}
    for pod in sorted(world.pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name)):
        key = (pod.metadata.namespace, pod.metadata.name)
        stays = pod.status.phase == "Running" and pod.status.pod_ip and not pod.metadata.deletion_timestamp
        if stays and not pod.spec.host_network and key not in behind:
            found.setdefault(pod.spec.node_name, pod)
    return found


@asynccontextmanager
async def _visitors(api: Api, state: State, nodes: Iterable[str]) -> AsyncIterator[dict[str, objects.Pod]]:
    """A pod on each of `nodes`, gone when the block ends."""
    names = {node: f"clusterip-check-{node}" for node in nodes}
    try:
        for node, name in names.items():
            container = {"name": "client", "image": IMAGE}
            spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            await api.create(resources.PODS, NAMESPACE, body)
        waiter = Waiter(state)
        yield {node: await waiter.pod(api, NAMESPACE, name) for node, name in names.items()}
    finally:
        for name in names.values():
            await _remove(api, name)


async def _remove(api: Api, name: str) -> None:
    """It may not have been made, or be gone with its node."""
    try:
        await api.delete(resources.PODS, NAMESPACE, name, grace_seconds=0)
    except ApiError as error:
        if error.code != 404:
            raise
