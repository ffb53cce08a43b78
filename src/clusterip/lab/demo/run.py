"""A stage on a cluster that runs: a namespace of its own, which goes when the demo ends."""

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from clusterip.client.api import Api
from clusterip.client.kubeconfig import load
from clusterip.errors import Unavailable
from clusterip.lab.demo.stage import Place, Stage, Tools
from clusterip.lab.plan import Plan, prefix
from clusterip.lab.state import Identity, State
from clusterip.model import objects, resources
from clusterip.node.sandbox import namespace_name

NAMESPACE = "demo"


def kubectl() -> str:
    """The one beside this Python, as set-up leaves it, or the one on PATH. Raises Unavailable."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("kubectl")
    if not found:
        raise Unavailable("kubectl: no such program", hint="run `make setup`, or put kubectl on PATH")
    return found


@asynccontextmanager
async def staged(state: State, plan: Plan, *, keep: bool) -> AsyncIterator[Stage]:
    """The stage; with `keep`, its namespace stays when the block ends. Raises Unavailable, ApiError."""
    program = kubectl()
    async with Api(load(str(state.kubeconfig)), user_agent="clusterip-demo") as api:
        namespace = await _free_namespace(api)
        await api.create(
            resources.NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        try:
            with tempfile.TemporaryDirectory(prefix="clusterip-demo-") as made:
                directory = Path(made)
                _copy_with_namespace(state.kubeconfig, directory / "kubeconfig", namespace)
                yield Stage(
                    api=api,
                    namespace=namespace,
                    tools=Tools(program, directory, f"iptables-{plan.iptables_variant}".rstrip("-")),
                    nodes=tuple(Place(node, plan.netns(node)) for node in plan.node_names),
                    pod_netns=lambda pod: namespace_name(prefix(plan.name), pod),
                    proxies=_proxies(state),
                    dns=plan.dns_ips[0],
                )
        finally:
            if not keep:
                await api.delete(resources.NAMESPACES, "", namespace)


async def _free_namespace(api: Api) -> str:
    """One that nobody has: what a reader keeps in a namespace `demo` is not ours to touch."""
    taken = {n.metadata.name for n in (await api.list(resources.NAMESPACES, objects.Namespace)).items}
    names = (NAMESPACE, *(f"{NAMESPACE}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _copy_with_namespace(kubeconfig: Path, copy: Path, namespace: str) -> None:
    """Its current context gets this default namespace, so that commands read as the texts have them."""
    document = yaml.safe_load(kubeconfig.read_text())
    for entry in document["contexts"]:
        if entry["name"] == document["current-context"]:
            entry["context"]["namespace"] = namespace
    copy.touch(mode=0o600)
    copy.write_text(yaml.safe_dump(document))


def _proxies(state: State) -> tuple[Identity, ...]:
    supervision = state.supervision()
    found = supervision.components if supervision else ()
    return tuple(c.process for c in found if c.process and c.name.startswith("proxy of "))
