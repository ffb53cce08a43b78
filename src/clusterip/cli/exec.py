"""`clusterip exec`: a command in a pod, on a node, on the control plane, or here."""

import os
import shutil
import sys

import click

from clusterip.cli import options
from clusterip.errors import BadInput, Unavailable

HELP = """Run a command in a pod (POD or NAMESPACE/POD), on a node (node-1), on the control plane (control-plane) or on
this machine (host).

\b
  clusterip exec client -- curl -s http://app/hostname
  clusterip exec kube-system/cluster-dns-... -- cat /etc/hosts
  clusterip exec node-1 -- iptables -t nat -L KUBE-SERVICES -n

A node is a network namespace: the command sees this machine's files, and the node's links, rules and connections.
In a pod it runs as with kubectl exec. The exit status is the command's.
"""


@click.command(help=HELP, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options.cluster
@click.option("-c", "--container", default="", help="Of a pod that has several; the first if not given.")
@click.option("-i", "--stdin", is_flag=True, help="Give the command our standard input (in a pod; elsewhere always).")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal (in a pod; elsewhere it has ours).")
@click.argument("target")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(name: str, container: str, stdin: bool, tty: bool, target: str, argv: tuple[str, ...]) -> None:
    argv = argv[1:] if argv[:1] == ("--",) else argv
    if not argv:
        raise BadInput(f"clusterip exec {target}: no command is given", hint=f"clusterip exec {target} -- hostname")
    from clusterip.lab.state import existing
    from clusterip.lab.targets import PodTarget, become
    from clusterip.lab.targets import target as parsed

    state, plan = existing(name)
    where = parsed(target, plan)
    if not isinstance(where, PodTarget):
        if os.geteuid() != 0:
            raise Unavailable(
                f"clusterip exec {target}: entering a node needs root", hint=f"sudo clusterip exec {target}"
            )
        program = shutil.which(argv[0])
        if program is None:
            click.echo(f"error: {argv[0]}: no such program", err=True)
            sys.exit(127)
        become(argv, plan, state, where)
    import asyncio

    from clusterip.client.kubeconfig import load
    from clusterip.lab.podexec import Command, execute

    wanted = Command(where.namespace, where.name, argv, container, stdin, tty and sys.stdin.isatty())
    sys.exit(asyncio.run(execute(load(str(state.kubeconfig)), wanted)))
