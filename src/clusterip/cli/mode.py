"""`clusterip mode`: which dataplane each node has, and another one while it runs."""

import os
from typing import TYPE_CHECKING

import click

from clusterip.cli import options
from clusterip.errors import BadInput, ClusterIPError, Unavailable

if TYPE_CHECKING:
    from clusterip.lab.modes import Changed
    from clusterip.lab.plan import Plan
    from clusterip.lab.state import State

HELP = """Without words: the mode of each node's proxy. With a node and a mode: change it while it runs. The new rules
are complete, and proved so, before the old ones go; no connection is lost.

\b
  clusterip mode
  clusterip mode node-1 nftables
  clusterip mode --all nftables

A node keeps its mode when its proxy is started again; clusterip down keeps nothing. Modes: iptables, nftables, ipvs,
ebpf.

Exit status: 0 done; 1 the node stays in the mode it was in.
"""


@click.command(help=HELP)
@options.cluster
@click.option("--all", "everywhere", is_flag=True, help="All nodes, one after the other; the first that fails ends it.")
@click.argument("words", nargs=-1, metavar="[NODE] [MODE]")
def command(name: str, everywhere: bool, words: tuple[str, ...]) -> None:
    import asyncio

    from clusterip.lab.modes import check
    from clusterip.lab.state import existing, locked

    state, plan = existing(name)
    if not words and not everywhere:
        asyncio.run(_list(plan))
        return
    if len(words) != (1 if everywhere else 2):
        wanted = "--all takes one word, the mode" if everywhere else "it takes a node and a mode"
        usage = "clusterip mode --all nftables" if everywhere else "clusterip mode node-1 nftables"
        raise BadInput(f"clusterip mode {' '.join(words)}".rstrip() + f": {wanted}", hint=usage)
    node, mode = ("", words[0]) if everywhere else words
    check(plan, node, mode)
    if os.geteuid() != 0:
        raise Unavailable("clusterip mode: changes rules of the kernel, which needs root", hint="sudo clusterip mode")
    with locked(name):
        asyncio.run(_change(plan, state, plan.node_names if everywhere else (node,), mode))


async def _list(plan: "Plan") -> None:
    import asyncio

    from clusterip.lab.proxies import proxy_status

    found = await asyncio.gather(*(proxy_status(plan, node) for node in plan.node_names))
    width = max(map(len, ("NODE", *plan.node_names))) + 2
    click.echo(f"{'NODE':<{width}}MODE")
    for node, (status, why) in zip(plan.node_names, found, strict=True):
        click.echo(f"{node:<{width}}{status.get('mode') or why}")
        if follows := (status.get("configuration") or {}).get("follows"):
            click.echo(f"{'':<{width}}{follows} follows by itself: {status['configuration']['waits']}")
        for line in status.get("left", ()):
            click.echo(f"{'':<{width}}still here: {line}")


async def _change(plan: "Plan", state: "State", nodes: tuple[str, ...], mode: str) -> None:
    from clusterip.lab.modes import change

    for number, node in enumerate(nodes):
        try:
            done = await change(plan, state, node, mode)
        except ClusterIPError:
            if untried := nodes[number + 1 :]:
                click.echo(f"not tried: {', '.join(untried)}", err=True)
            raise
        _print(node, done)


def _print(node: str, done: "Changed") -> None:
    if done.before == done.now and not done.phases:
        click.echo(f"{node}: {done.now} already" if not done.follows else f"{node}: {done.now}, and waits already")
        return
    phases = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in done.phases)
    click.echo(f"{node}: {done.before} -> {done.now} in {done.seconds:.1f} s" + (f" ({phases})" if phases else ""))
    if done.follows:
        click.echo(f"  {done.follows} follows by itself: {done.waits}")
    for line in done.left:
        click.echo(f"  still here, until they end: {line}")
