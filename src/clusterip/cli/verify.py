"""`clusterip verify`: does the kernel hold what the API says? For every packet, and with one that shows it if not."""

import ipaddress
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from clusterip.cli import options
from clusterip.errors import BadInput, ClusterIPError

if TYPE_CHECKING:
    from clusterip.cli.verify_text import Further
    from clusterip.diagnosis.facts import Facts
    from clusterip.diagnosis.verify.premises import Premises

HELP = """Does the kernel hold what the API says? The rules of one node are compared with the Services and
EndpointSlices, not by their text but by what they do: for every packet from every client to every destination the same
backends with the same shares, the same refusals, masquerading and affinity. If not: what is missing, stale or extra,
each with a packet that shows it, which clusterip trace replays.

FILE of --rules is iptables-save, nft list ruleset, ipvsadm -Ln with ipset save and ip addr, or a bundle of clusterip
collect, which holds the objects as well; - is stdin. Without it a live node is read: one of a cluster here with --node,
else this machine. Which addresses serve node ports the proxy's configuration says, if it is at hand, else the rules.

\b
  clusterip verify --node node-1
  clusterip verify --rules save.txt -f objects.yaml --node node-1 --node-ip 192.168.50.11
  sudo clusterip verify --kubeconfig ~/.kube/config --node $(hostname)

What tells a pod's packets from others' is the proxy's own setting: it is found in the rules unless --cluster-cidr says
it. Of a rule that asks for something unknown both answers are tried; if they differ, that is said and nothing claimed.
In eBPF mode each program has to run at its hook. A remark names what of the host stops packets that the rules deliver.

Exit status: 0 equal, 1 different, 2 that cannot be told.
"""


@dataclass(frozen=True, slots=True)
class Options:
    rules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    kubeconfig: str = ""
    name: str = ""
    node: str = ""
    node_ip: str = ""
    zone: str = ""
    cluster_cidr: str = ""
    nodeport_addresses: str | None = None
    output: str = "text"
    everything: bool = False


@click.command(help=HELP)
@click.option("--rules", multiple=True, metavar="FILE", help="what the node holds; can be given several times")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="manifests: what should be")
@click.option("--kubeconfig", default="", metavar="FILE", help="ask this cluster's API server what should be")
@click.option("--node", default="", metavar="NODE", help="a node of a cluster here, or whose rules the files hold")
@options.cluster
@click.option("--node-ip", default="", metavar="IP[,IP]", help="its addresses, where nothing tells them")
@click.option("--zone", default="", help="its zone, which decides on topology hints, where nothing tells it")
@click.option("--cluster-cidr", default="", metavar="CIDR[,CIDR]", help="where pods are; default: as the rules have it")
@click.option("--nodeport-addresses", metavar="IP,...", help="its addresses that serve node ports; default: as found")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--all", "everything", is_flag=True, help="print every difference, however many")
def command(**given: object) -> None:
    asked = Options(**given)  # type: ignore[arg-type]  # click has made each of its type
    try:
        sys.exit(_verify(asked))
    except ClusterIPError as error:  # here 1 is an answer, so what could not be asked is 2
        click.echo(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), err=True)
        sys.exit(2)


def _verify(asked: Options) -> int:
    import gc

    from msgspec.structs import replace as with_fields

    from clusterip.cli.verify_text import lines
    from clusterip.diagnosis.answer import to_json
    from clusterip.diagnosis.verify.host import remarks
    from clusterip.diagnosis.verify.premises import premises, sentences
    from clusterip.diagnosis.verify.verify import verify

    gc.disable()  # a million rules stay until the end: the collector would walk them again and again
    facts, told = _facts(asked), _told(asked)
    if not (facts.iptables or facts.nft or facts.ipvs or facts.sockets):
        raise BadInput(
            "no rules are known, so there is nothing to compare",
            hint="iptables-save > save.txt; nft list ruleset > nft.txt; then --rules save.txt --rules nft.txt",
        )
    if not facts.services:
        raise BadInput(
            "no Service is known, so there is nothing to compare the rules with",
            hint="kubectl get services,endpointslices,nodes -A -o yaml > objects.yaml, then add -f objects.yaml",
        )
    found = premises(facts, told)
    verified = with_fields(
        verify(facts, found), premises=sentences(found, told), remarks=remarks(facts, found.node, live=not asked.rules)
    )
    if asked.output == "json":
        click.echo(to_json(verified), nl=False)
    else:
        colours = None if "NO_COLOR" not in os.environ else False
        for line in lines(verified, _further(asked), everything=asked.everything):
            click.echo(line, color=colours)
        for problem in facts.problems[:5]:
            click.echo(f"could not be read: {problem}", err=True)
    return verified.exit_status


def _facts(asked: Options) -> "Facts":
    from clusterip.cli import inputs
    from clusterip.diagnosis.facts import merge

    if asked.rules:
        facts = merge(inputs.read((*asked.rules, *asked.files)), asked.node)
    else:
        facts = inputs.node_facts(asked.name, asked.node) if _of_lab(asked) else merge(inputs.of_machine(), asked.node)
        if asked.files:
            named = merge(inputs.read(asked.files))
            facts = replace(facts, services=named.services, slices=named.slices, pods=named.pods, nodes=named.nodes)
    return inputs.with_api(facts, asked.kubeconfig) if asked.kubeconfig else facts


def _told(asked: Options) -> "Premises":
    from clusterip.diagnosis.verify.premises import Premises

    served = asked.nodeport_addresses
    return Premises(
        node=asked.node,
        zone=asked.zone,
        addresses=_addresses(asked.node_ip, "--node-ip"),
        pod_networks=_networks(asked.cluster_cidr),
        node_port_addresses=None if served is None else _addresses(served, "--nodeport-addresses"),
    )


def _addresses(text: str, option: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_address(part.strip())) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise BadInput(f"{option}: {error}", hint=f"for example {option} 192.168.50.11") from error


def _networks(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(part.strip(), strict=False)) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise BadInput(f"--cluster-cidr: {error}", hint="for example --cluster-cidr 10.244.0.0/16") from error


def _further(asked: Options) -> "Further":
    from clusterip.cli.verify_text import Further

    if asked.rules:
        doctor = "".join(f" {file}" for file in (*asked.rules, *asked.files))
        return Further("".join(f" --rules {file}" for file in asked.rules), doctor)
    lab = f" --node {asked.node}" + (f" --name {asked.name}" if asked.name != "clusterip" else "") if asked.node else ""
    # Of this machine doctor has everything but the API's objects; with --node it would look for a cluster here.
    return Further(lab, lab if _of_lab(asked) else f" --kubeconfig {asked.kubeconfig}" if asked.kubeconfig else "")


def _of_lab(asked: Options) -> bool:
    return bool(asked.node and not asked.kubeconfig and not asked.files)
