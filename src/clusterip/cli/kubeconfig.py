"""`clusterip kubeconfig`: where the cluster's kubeconfig is."""

import click

from clusterip.cli import options


@click.command()
@options.cluster
def command(name: str) -> None:
    """Print the path of the cluster's kubeconfig: export KUBECONFIG=$(clusterip kubeconfig)"""
    from clusterip.lab.state import existing

    state, _ = existing(name)
    click.echo(state.kubeconfig)
