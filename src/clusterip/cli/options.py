"""Options that several commands share."""

import click

from clusterip.services.table import FAMILIES

family = click.Choice(FAMILIES)
cluster = click.option(
    "--name",
    envvar="CLUSTERIP_NAME",
    default="clusterip",
    show_default=True,
    show_envvar=True,
    help="The cluster. Several can live side by side.",
)
