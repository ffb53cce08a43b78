"""`clusterip dns`: the cluster's name server."""

import logging
import re
from typing import TYPE_CHECKING

import click

from clusterip.cli.running import run_until_told
from clusterip.errors import BadInput

if TYPE_CHECKING:
    from clusterip.dns.zone import Name

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


@click.command()
@click.option("--kubeconfig", default="", help="Kubeconfig file; none, or in-cluster: as a pod.")
@click.option(
    "--listen",
    "listen_on",
    multiple=True,
    default=(":53",),
    show_default=True,
    metavar="[ADDRESS]:PORT",
    help="For UDP and TCP; without an address, all of both families. May be repeated.",
)
@click.option("--http", default="", metavar="[ADDRESS]:PORT", help="For /health, /ready and /metrics, such as :9153.")
@click.option("--cluster-domain", default="cluster.local", show_default=True)
@click.option(
    "--forward",
    default="/etc/resolv.conf",
    show_default=True,
    help="Who is asked about other names: ADDRESS[:PORT],..., the path of a resolv.conf, or none. "
    "With none they are refused.",
)
@click.option(
    "--ttl", type=click.IntRange(0, 3600), default=5, show_default=True, help="Seconds an answer may be kept."
)
@click.option(
    "--pods",
    type=click.Choice(["disabled", "insecure", "verified"]),
    default="insecure",
    show_default=True,
    help="10-244-1-3.NAMESPACE.pod.DOMAIN: no such name; the address it spells; only if a pod has it.",
)
def command(
    kubeconfig: str,
    listen_on: tuple[str, ...],
    http: str,
    cluster_domain: str,
    forward: str,
    ttl: int,
    pods: str,
) -> None:
    """Answer for the names of Services, from any Kubernetes API server, over UDP and TCP."""
    from clusterip.client.kubeconfig import in_cluster, load
    from clusterip.dns.forward import upstreams
    from clusterip.dns.process import Settings, serve
    from clusterip.dns.server import listen
    from clusterip.dns.zone import Pods

    settings = Settings(
        connection=in_cluster() if kubeconfig in ("", "in-cluster") else load(kubeconfig),
        listen=tuple(listen(option) for option in listen_on),
        http=listen(http) if http else None,
        domain=_domain(cluster_domain),
        forward=upstreams(forward),
        ttl=ttl,
        pods=Pods(pods),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s")
    run_until_told(serve(settings))


def _domain(option: str) -> "Name":
    domain = option.lower().rstrip(".")
    if not _DOMAIN.fullmatch(domain) or len(domain) > 253:
        raise BadInput(f"--cluster-domain {option}: not a domain name", hint="the usual one is cluster.local")
    return tuple(domain.split("."))
