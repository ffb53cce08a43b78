"""`clusterip check`: what came of reaching every Service port from every kind of client."""

import sys

import click

from clusterip.cli import options

HELP = """Reach every Service port from every kind of client: each node, a pod on each node, and this machine itself if
the cluster was brought up with --host-access. A node where no pod is free to ask gets one for the time of the check.
Asked are ClusterIPs, external IPs, addresses of load balancers (but those with ipMode Proxy) and, of a node port, each
node; of both families.

TCP ports are connected to, UDP ports are sent a datagram, DNS ports are asked a question. With SERVICE ("web",
"default/web"), only those.

Exit status: 0 all reach; 1 something does not, be it because nothing stands behind it; 2 it could not be asked.
Silence of a UDP port is not held against it: servers may stay silent, and a kernel refuses only so many datagrams a
second. What a traffic policy or source ranges keep from a client is not held against a port either.

\b
-o json prints one object:
  allReach  true or false          seconds  how long the check took
  counts    tries by verdict       clients  [{name, kind: node|pod|host, node}]
  ports     [{service, portName, protocol, address, port, kind, nodePortOf: node or null,
              results: [{client, verdict, saw, milliseconds, detail, expected, because}]}]
  kind      clusterIP, externalIP, loadBalancer, nodePort
  verdict   ok, empty (refused, and nothing is ready), kept local (a traffic policy, or source ranges),
            unknown (silence), wrong (the API says otherwise)
  saw       reached, refused, timed out, silent, dropped, unreachable, not tried
  expected  reach, refuse, drop, not reach (refused, or gone out to whoever has the address), by what the API said
            just then; because: its reason
"""


@click.command(help=HELP)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@options.cluster
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Seconds a try may take.",
    metavar="S",
)
@click.argument("services", nargs=-1, metavar="[SERVICE]...")
def command(output: str, name: str, timeout: float, services: tuple[str, ...]) -> None:
    import asyncio
    import json

    from clusterip.cli.check_text import print_report
    from clusterip.errors import ClusterIPError
    from clusterip.lab.check.clients import check_cluster
    from clusterip.lab.check.judge import document
    from clusterip.lab.check.run import Question
    from clusterip.lab.check.values import Verdict

    try:
        report = asyncio.run(check_cluster(name, Question(services, timeout)))
    except ClusterIPError as error:  # here 1 is an answer, so what could not be asked is 2
        click.echo(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), err=True)
        sys.exit(2)
    if output == "json":
        click.echo(json.dumps(document(report), indent=2))
    else:
        print_report(report)
    failed = report.count(Verdict.WRONG) or report.count(Verdict.EMPTY)
    sys.exit(1 if failed else 2 if report.gone else 0)
