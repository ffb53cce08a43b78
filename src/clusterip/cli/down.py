"""`clusterip down`: takes a cluster away."""

import os

import click

from clusterip.cli import options
from clusterip.errors import Unavailable


@click.command()
@options.cluster
@click.option("--all", "everything", is_flag=True, help="All clusters of this machine.")
def command(name: str, everything: bool) -> None:
    """Take the cluster away: its processes, network namespaces and files. Nothing is kept, neither what the API holds
    nor the modes of nodes."""
    import asyncio

    from clusterip.lab.down import take_away
    from clusterip.lab.state import clusters, locked, state_of

    if os.geteuid() != 0:
        raise Unavailable("clusterip down: removes network namespaces, which needs root", hint="sudo clusterip down")
    names = clusters() if everything else (name,)
    if not names:
        click.echo("there is no cluster to remove")
    for each in names:
        state = state_of(each)
        with locked(each):
            removed = asyncio.run(take_away(state))
        click.echo(f"cluster {each}: removed {removed}" if removed else f"cluster {each}: there is nothing to remove")
