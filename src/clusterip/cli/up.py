"""`clusterip up`: a cluster of several nodes on this machine."""

import sys
import time
from typing import TYPE_CHECKING

import click

from clusterip.cli import options

if TYPE_CHECKING:
    from clusterip.lab.plan import Plan
    from clusterip.lab.state import State
    from clusterip.lab.up import Rise, Step

HELP = """Bring up a cluster of several nodes on this machine, in network namespaces: an API server and controllers for
kubectl, and on each node an agent that runs pods as processes, and a proxy. No container engine, no images.

Addresses: pods 10.244.N.0/24 and fd00:1:N::/64 on node-N, Services 10.96.0.0/16 and fd00:96::/112, nodes
192.168.50.(10+N) and fd00:50::(10+N). This machine's own network gets no link, no route and no rule, but for
--host-access.
"""

# What shows the Services in a node's kernel, by mode.
LISTINGS = {"iptables": "iptables -t nat -L KUBE-SERVICES -n", "ipvs": "ipvsadm -L -n"}


@click.command(help=HELP)
@click.option("--nodes", default=3, show_default=True)
@options.cluster
@click.option("--proxy-mode", default="iptables", show_default=True)
@click.option("--iptables-variant", default="", help="nft or legacy; as `iptables` of this machine if not given.")
@click.option("--host-access", is_flag=True, help="One link, and a route a family: this machine reaches the Services.")
@click.option(
    "--ip-family", default="", help="Of nodes and pods: dual, ipv4 or ipv6.  [default: dual, if there is IPv6]"
)
@click.option(
    "--service-cidr",
    default="",
    metavar="CIDR[,CIDR]",
    help="Addresses of the Services, the primary family first.  [default: 10.96.0.0/16,fd00:96::/112]",
)
@click.option("--node-port-range", default="30000-32767", show_default=True)
@click.option("--images", default="", metavar="FILE", help="YAML: what program an image name stands for.")
@click.option("--proxy-config", default="", metavar="FILE", help="kube-proxy's configuration, completed for each node.")
@click.option("--no-wait", is_flag=True, help="Return when the API server answers.")
def command(images: str, proxy_config: str, no_wait: bool, **options: object) -> None:
    import asyncio

    from clusterip.lab import down, up
    from clusterip.lab.files import effective, read_given
    from clusterip.lab.state import locked, state_of

    plan = _plan(**options)
    state = state_of(plan.name)
    given = read_given(plan, state, proxy_config, images)
    up.preflight(plan)
    asyncio.run(up.check_mode(plan, effective(plan, state, given)))
    with locked(plan.name):
        found = up.standing(state)
        rise = up.Rise(plan, state, given)
        try:
            if found.plan is not None:
                up.refuse_other(plan, found.plan)
                click.echo(f"cluster {plan.name} is up already")
                asyncio.run(_run_all(rise.waits(wait=not no_wait)))
            else:
                if found.remains:
                    asyncio.run(down.take_away(state))
                    click.echo(f"cluster {plan.name}: cleaned up what was left of it: {found.remains}")
                asyncio.run(_rise(rise, state, wait=not no_wait))
        except KeyboardInterrupt:
            if up.standing(state) != up.Standing():
                click.echo(
                    f"\ncluster {plan.name} goes on by itself; clusterip down{_option(plan)} takes it away", err=True
                )
            raise
    click.echo()
    for line in next_steps(plan, state):
        click.echo(f"  {line}")


def _plan(**options: object) -> "Plan":
    """From the options as click has them."""
    import msgspec

    from clusterip.lab.network import usual_ip_family
    from clusterip.lab.plan import Plan, checked

    options["node_ports"] = options.pop("node_port_range")
    options["ip_family"] = options["ip_family"] or usual_ip_family()
    return checked(msgspec.convert(options, Plan))


async def _rise(rise: "Rise", state: "State", *, wait: bool) -> None:
    """What fails before there is anything to look at is taken away; later, its logs are worth more."""
    from clusterip.lab.down import take_away

    begun = time.monotonic()
    try:
        await _run_all(rise.makes())
    except BaseException:
        await take_away(state)
        raise
    await _run_all(rise.waits(wait=wait))
    click.echo(f"up in {time.monotonic() - begun:.1f} s")


async def _run_all(steps: "tuple[Step, ...]") -> None:
    for step in steps:
        await _run(step)


async def _run(step: "Step") -> None:
    """A terminal sees the step while it runs."""
    shown = sys.stdout.isatty()
    if shown:
        click.echo(f"  {step.title} ...", nl=False)
    begun = time.monotonic()
    try:
        said = await step.run()
    except BaseException:
        if shown:
            click.echo(f"\r\x1b[K{click.style('✗', fg='red')} {step.title}")
        raise
    took = f"{time.monotonic() - begun:.1f} s"
    if shown:
        click.echo(f"\r\x1b[K{click.style('✓', fg='green')} {step.title:<40} {took:>6}  {click.style(said, dim=True)}")
    else:
        click.echo(f"{step.title}: {took}{', ' if said else ''}{said}")


def _option(plan: "Plan") -> str:
    """What makes a command mean this cluster."""
    return "" if plan.name == "clusterip" else f" --name {plan.name}"


def next_steps(plan: "Plan", state: "State") -> tuple[str, ...]:
    """What to type now."""
    from clusterip.lab.modes import begins_in

    name = _option(plan)
    listing = LISTINGS.get(begins_in(state, "node-1"), "nft list table ip clusterip")
    if plan.families[0] == "IPv6":
        listing = listing.replace("iptables", "ip6tables").replace("table ip ", "table ip6 ")
    return (
        f"export KUBECONFIG={state.kubeconfig}",
        "kubectl get nodes,services,pods -A -o wide",
        "kubectl create deployment app --image=clusterip/echo --replicas=3",
        "kubectl expose deployment app --port=80 --target-port=8080",
        f"clusterip exec{name} client -- curl -s http://app/hostname",
        f"clusterip exec{name} node-1 -- {listing}",
        f"clusterip demo{name}",
    )
