"""`clusterip echo`: the server behind the image clusterip/echo."""

import click

HELP = """Run the server behind the image clusterip/echo: HTTP, UDP and plain TCP, to see who answers whom.

\b
  curl http://ADDRESS:8080/hostname     which pod answered
  curl http://ADDRESS:8080/clientip     whom it saw asking
  curl -X POST http://ADDRESS:8080/fail the pod fails its probe; /ok mends it
"""


@click.command(help=HELP)
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="HTTP on TCP, and UDP.")
@click.option(
    "--tcp-echo-port", default=0, type=click.IntRange(0, 65535), help="Sends back what it gets. [default: off]"
)
@click.option("--drain", default=0.0, type=click.FloatRange(min=0), help="Seconds to go on serving after SIGTERM.")
def command(port: int, tcp_echo_port: int, drain: float) -> None:
    from clusterip.node.echo import serve

    serve(port, tcp_echo_port, drain)
