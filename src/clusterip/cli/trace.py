"""`clusterip trace`: where a packet goes, with which probability, by which rule, and how the answer comes back."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from clusterip.cli import options
from clusterip.errors import BadInput

if TYPE_CHECKING:
    from clusterip.diagnosis.answer import Trace
    from clusterip.diagnosis.facts import Facts
    from clusterip.services.table import Family

HELP = """Where does this packet go, and why not where it should? Answers from files, on any machine and without root,
or from a live kernel: every outcome with its exact probability, the rules that fired, and the way back.

\b
SOURCE       pod:10.244.1.7  node  node:192.168.50.11  outside:203.0.113.9  default/client
DESTINATION  10.96.0.20:80  10.96.0.10:53/udp  [fd00::1]:80  web.default:http  icmp:10.96.0.20

FILE is whatever there is, in any mixture: iptables-save, nft list ruleset, ipvsadm -Ln, ipset save, conntrack -L,
ip addr, ip route, sysctl -a, manifests, or a bundle of clusterip collect; - is stdin. Without one, this machine
is read.

\b
  iptables-save | clusterip trace pod:10.244.1.7 10.96.0.20:80 --rules -
  clusterip trace pod:10.244.1.7 web.default:80 --rules save.txt --rules ip-addr.txt -f app.yaml
  clusterip trace client web:80 --node node-1
  clusterip trace client web:80 --node node-1 --live

Exit status: 0 it is delivered, 1 it is not, be it over one family of two, 2 that cannot be told.
"""


@dataclass(frozen=True, slots=True)
class Options:
    source: str
    destination: str
    rules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    kubeconfig: str = ""
    name: str = ""
    node: str = ""
    interface: str | None = None
    family: "Family | None" = None
    output: str = "text"
    inputs: bool = False
    live: bool = False


@click.command(help=HELP)
@click.argument("source")
@click.argument("destination")
@click.option("--rules", multiple=True, metavar="FILE", help="what a node holds; can be given several times")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="manifests, so that names are known")
@click.option("--kubeconfig", default="", metavar="FILE", help="ask this cluster's API server for names")
@click.option(
    "--node", default="", metavar="NODE", help="read a node of a cluster on this machine, or say whose the files are"
)
@options.cluster
@click.option(
    "--family",
    type=options.family,
    help="of a Service that has both; default: its first, and the verdict over the other",
)
@click.option("--in", "interface", metavar="IFACE", help="the interface it comes in by, where that matters")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--live", is_flag=True, help="send one such packet, and have the kernel itself tell where it goes")
@click.option("--inputs", is_flag=True, help="say on stderr what each file was taken for, and what could not be read")
def command(**given: object) -> None:
    from clusterip.diagnosis.answer import to_json
    from clusterip.diagnosis.trace import Tracer

    asked = Options(**given)  # type: ignore[arg-type]  # click has made each of its type
    facts = _facts(asked)
    if asked.inputs:
        _tell(facts)
    question = (asked.source, asked.destination, asked.interface, asked.family)
    answer = _observed(asked, facts) if asked.live else Tracer(facts).ask(*question)
    if asked.output == "json":
        click.echo(to_json(answer), nl=False)
    else:
        _print(answer, facts, live=asked.live)
    sys.exit(answer.exit_status)


def _observed(asked: Options, facts: "Facts") -> "Trace":
    import asyncio

    from msgspec.structs import replace as replace_fields

    from clusterip.cli import trace_live
    from clusterip.diagnosis.trace import Tracer

    if asked.rules:
        raise BadInput("--live asks a kernel, --rules files: both at once cannot be", hint="leave out one of them")
    tracer, question = Tracer(facts), (asked.source, asked.destination, asked.interface, asked.family)
    place = trace_live.place(asked.name, asked.node)
    answer = asyncio.run(trace_live.run(facts, place, *tracer.asked(*question)))
    return replace_fields(answer, other_families=tracer.other_families(*question))


def _facts(asked: Options) -> "Facts":
    from clusterip.cli import inputs
    from clusterip.diagnosis.facts import merge

    if asked.rules:
        facts = merge([*inputs.read(asked.rules), *inputs.read(asked.files)], asked.node)
        _need_rules(facts, asked.rules)
    else:
        facts = inputs.node_facts(asked.name, asked.node) if asked.node else merge(inputs.of_machine())
        if asked.files:
            named = merge(inputs.read(asked.files))
            facts = replace(facts, services=named.services, slices=named.slices, pods=named.pods, nodes=named.nodes)
    return inputs.with_api(facts, asked.kubeconfig) if asked.kubeconfig else facts


def _need_rules(facts: "Facts", files: Sequence[str]) -> None:
    if facts.iptables or facts.nft or facts.ipvs or facts.sockets or facts.conntrack:
        return
    what = ", ".join(sorted({i.kind for i in facts.inputs})) or "nothing that can be read"
    problem = f": {facts.problems[0]}" if facts.problems else ""
    raise BadInput(
        f"{', '.join(files)}: no rules in it, but {what}{problem}",
        hint="iptables-save > save.txt; nft list ruleset > nft.txt",
    )


def _tell(facts: "Facts") -> None:
    for one in facts.inputs:
        click.echo(f"{one.file}:{one.line}: {one.kind}, {one.facts} facts", err=True)
    for problem in facts.problems:
        click.echo(str(problem), err=True)


def _print(answer: "Trace", facts: "Facts", *, live: bool) -> None:
    from clusterip.cli.trace_text import lines

    colours = None if "NO_COLOR" not in os.environ else False
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines(answer, width):
        click.echo(line, color=colours)
    if live:
        from clusterip.cli import trace_live
        from clusterip.diagnosis.observed import LiveTrace

        for line in trace_live.lines(answer) if isinstance(answer, LiveTrace) else ():
            click.echo(line, color=colours)
    if facts.problems:
        count = len(facts.problems)
        click.echo(
            f"{count} {'line' if count == 1 else 'lines'} could not be read, first {facts.problems[0]}", err=True
        )
