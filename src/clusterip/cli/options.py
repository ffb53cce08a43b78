"""Options that several commands share."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from clusterip.services.table import Family

FAMILIES: "tuple[Family, ...]" = ("IPv4", "IPv6")


cluster = click.option(
    "--name",
    envvar="CLUSTERIP_NAME",
    default="clusterip",
    show_default=True,
    show_envvar=True,
    help="The cluster. Several can live side by side.",
)
