"""`clusterip controllers`: run the controllers."""

import click

from clusterip.errors import BadInput


@click.command(
    help="""Run the controllers: EndpointSlices and Endpoints, ReplicaSets, Deployments, the scheduler, the garbage
    collector, namespaces on their way out, and nodes that fall silent.

    Example: clusterip controllers --kubeconfig admin.kubeconfig --metrics-bind-address 127.0.0.1:10257"""
)
@click.option("--kubeconfig", default="", help="How to reach the API server; without it, as a pod of the cluster.")
@click.option(
    "--max-endpoints-per-slice", default=100, show_default=True, metavar="N", help="Between 1 and 1000.", type=int
)
@click.option(
    "--metrics-bind-address", default="", metavar="HOST:PORT", help="Where /healthz, /readyz and /metrics are served."
)
@click.option("-v", "--verbose", is_flag=True, help="Log every failed round, not only warnings.")
def command(kubeconfig: str, max_endpoints_per_slice: int, metrics_bind_address: str, verbose: bool) -> None:
    import asyncio
    import logging

    from clusterip.client.kubeconfig import in_cluster, load
    from clusterip.controllers.process import Options, run

    if not 1 <= max_endpoints_per_slice <= 1000:
        raise BadInput(f"--max-endpoints-per-slice {max_endpoints_per_slice}: must be between 1 and 1000")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    connection = load(kubeconfig) if kubeconfig else in_cluster()
    asyncio.run(run(Options(connection, max_endpoints_per_slice, metrics_bind_address)))
