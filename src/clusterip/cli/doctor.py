"""`clusterip doctor`: what is wrong with the Services, from files of any kind, a cluster's API, or a live node."""

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from clusterip.cli import options
from clusterip.errors import BadInput

if TYPE_CHECKING:
    from clusterip.rulesets.recognise import Recognised

HELP = """What is wrong with the Services here, and what to do about it? The worst comes first, each with what shows it,
what it costs where that can be computed, and a remedy that can be typed. What people often take for a fault, and is
none, is said as such. What would be needed to say more is asked for; nothing is guessed.

FILE is whatever there is, in any mixture and of any number of nodes: manifests (kubectl get -A -o yaml), iptables-save,
iptables -L -n -v, nft list ruleset, ipvsadm -Ln, ipset save, conntrack -L and -S, ip addr, ip route, sysctl -a, logs of
kube-proxy, or a bundle of clusterip collect; - is stdin. Without one, this machine is read.

\b
  kubectl get services,endpointslices,pods,nodes -A -o yaml | clusterip doctor -
  clusterip doctor node-1/iptables-save.txt node-2/iptables-save.txt objects.yaml kube-proxy.log
  clusterip doctor --node node-1
  clusterip doctor --move nftables bundle.tar.gz

Exit status: 0 nothing is broken, 1 something is, 2 nothing could be read.
"""


@dataclass(frozen=True, slots=True)
class Options:
    files: tuple[str, ...] = ()
    kubeconfig: str = ""
    name: str = ""
    node: str = ""
    output: str = "text"
    verbose: bool = False
    move: str | None = None


@click.command(help=HELP)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--kubeconfig", default="", metavar="FILE", help="ask this cluster's API server for its objects as well")
@click.option(
    "--node", default="", metavar="NODE", help="read a node of a cluster on this machine, or say whose view counts"
)
@options.cluster
@click.option(
    "--move",
    type=click.Choice(["nftables"]),
    help="not what is wrong: what a move to this proxy mode would change here",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="say what each file was taken for, and what could not be read")
def command(**given: object) -> None:
    from clusterip.cli.doctor_text import lines
    from clusterip.cli.node_proxy import proxy_of_node
    from clusterip.diagnosis.answer import to_json
    from clusterip.diagnosis.doctor import diagnose

    asked = Options(**given)  # type: ignore[arg-type]  # click has made each of its type
    inputs = _inputs(asked)
    _need_something(inputs)
    proxy = proxy_of_node(asked.name, asked.node) if asked.node and not asked.files else None
    diagnosis = diagnose(inputs, asked.node, moving=bool(asked.move), proxy=proxy)
    if asked.output == "json":
        click.echo(to_json(diagnosis), nl=False)
    else:
        colours = None if "NO_COLOR" not in os.environ else False
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        problems = [problem for one in inputs for problem in one.problems] if asked.verbose else []
        for line in lines(diagnosis, width, problems, verbose=asked.verbose, moving=bool(asked.move)):
            click.echo(line, color=colours)
    sys.exit(diagnosis.exit_status)


def _inputs(asked: Options) -> "list[Recognised]":
    from clusterip.cli.inputs import of_machine, of_node, read

    if asked.files:
        found = read(asked.files)
        return [*found, *_of_api(asked.kubeconfig)] if asked.kubeconfig else found
    if asked.node:
        from clusterip.lab.state import existing

        found = of_node(asked.name, asked.node)
        return [*found, *_of_api(asked.kubeconfig or str(existing(asked.name)[0].kubeconfig))]
    return _of_api(asked.kubeconfig) if asked.kubeconfig else of_machine()


def _need_something(inputs: "list[Recognised]") -> None:
    if any(one.parts for one in inputs):
        return
    names = ", ".join(one.name for one in inputs) or "the input"
    problem = next((str(problem) for one in inputs for problem in one.problems), "it is empty")
    raise BadInput(
        f"{names}: nothing in it that can be read: {problem}",
        hint="iptables-save > node-1.txt; kubectl get services,endpointslices,pods,nodes -A -o yaml > objects.yaml",
    )


def _of_api(kubeconfig: str) -> "list[Recognised]":
    import asyncio

    return [asyncio.run(_objects(kubeconfig))]


async def _objects(kubeconfig: str) -> "Recognised":
    from clusterip.client.api import Api
    from clusterip.client.kubeconfig import load
    from clusterip.model import objects as o
    from clusterip.model.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES, Resource
    from clusterip.rulesets.manifests import Manifest, Manifests
    from clusterip.rulesets.recognise import Part, Recognised
    from clusterip.rulesets.sections import Kind

    wanted: tuple[tuple[Resource, type[o.Service | o.EndpointSlice | o.Pod | o.Node]], ...] = (
        (SERVICES, o.Service),
        (ENDPOINT_SLICES, o.EndpointSlice),
        (PODS, o.Pod),
        (NODES, o.Node),
    )
    found: list[Manifest] = []
    async with Api(load(kubeconfig)) as api:
        for resource, as_type in wanted:
            for value in (await api.list(resource, as_type)).items:
                meta = value.metadata
                found.append(Manifest(resource.api_version, resource.kind, meta.namespace, meta.name, {}, value))
    return Recognised("API", (Part(Kind.MANIFESTS, Manifests(tuple(found)), len(found), 1),))
