"""`clusterip dns`: the cluster's name server."""

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import click

from clusterip.errors import BadInput, ClusterIPError

if TYPE_CHECKING:
    from clusterip.dns.zone import Name

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


@click.command()
@click.option("--kubeconfig", default="", help="Kubeconfig file; none, or in-cluster: as a pod.")
@click.option(
    "--listen",
    "listen_on",
    multiple=True,
    default=("0.0.0.0:53",),
    show_default=True,
    help="Address and port for UDP and TCP; may be repeated.",
)
@click.option("--http", default="", help="Address and port for /health, /ready and /metrics, such as 0.0.0.0:9153.")
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


def run_until_told(main: Coroutine[object, object, object]) -> None:
    """Runs until SIGTERM or SIGINT. Of several errors that ended it the first that a person can use is raised."""

    async def with_signals() -> None:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(with_signals())
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup) -> BaseException:
    told, _ = group.split(ClusterIPError)
    found: BaseException = told or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
