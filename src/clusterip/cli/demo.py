"""`clusterip demo`: walks the road of a packet on a real cluster."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from clusterip.errors import BadInput

if TYPE_CHECKING:
    from clusterip.cli.demo_text import Renderer
    from clusterip.lab.plan import Plan
    from clusterip.lab.state import State

HELP = """Walk the road of a packet on a real cluster, and print at each step the evidence that was collected just then:
the object, the rule and its counter, the conntrack entry, the packet before and after.

Uses the cluster that is up, if its proxies are in iptables mode, in a namespace of its own that is removed at the
end. Else brings one up and takes it away again, or keeps it with --keep.

Exit status: 0 if every claim was observed; 1 if one was not.
"""
OWN_NAME = "demo"
PAUSE = 0.25  # seconds after a command or a claim: time to read, short enough to stay awake


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster to play on."""

    name: str
    state: "State"
    plan: "Plan"
    own: bool  # brought up for this demo
    keep: bool


NAME = 'The cluster. Default: "clusterip" if it is up, else "demo".'


@click.command(help=HELP)
@click.option("--name", envvar="CLUSTERIP_NAME", default="", help=NAME)
@click.option("--keep", is_flag=True, help="Leave everything there at the end, to look around.")
@click.option("--nodes", default=3, show_default=True, help="Of a cluster that is brought up.")
@click.option("--fast", is_flag=True, help="No pauses.")
def command(name: str, keep: bool, nodes: int, fast: bool) -> None:
    from clusterip.cli.demo_text import Renderer, console

    to = Renderer(console(), 0.0 if fast else PAUSE)
    try:
        held = asyncio.run(_play(to, name, nodes, keep))
    except KeyboardInterrupt:
        to.stop_waiting()
        click.echo("stopped" if keep else "stopped; what the demo made is removed", err=True)
        sys.exit(130)
    sys.exit(0 if held else 1)


async def _play(to: "Renderer", name: str, nodes: int, keep: bool) -> bool:
    from clusterip.lab.demo.run import staged
    from clusterip.lab.demo.script import perform

    start = time.monotonic()
    to.say("One stable address in front of many pods: what happens to a packet?", style="bold")
    async with _scene(to, name, nodes, keep) as scene:
        async with staged(scene.state, scene.plan, keep=keep) as stage:
            to.say(
                f"This is cluster {scene.name}: {len(stage.nodes)} nodes, each a network with rules of its own. "
                f"All you see is run now, in namespace {stage.namespace}. A prompt says where: $ in this shell, "
                f"node-1# on that node, client# in that pod."
            )
            async with contextlib.aclosing(perform(stage)) as performance:
                async for shown in performance:
                    to.show(shown)
            held = to.summary(time.monotonic() - start)
        _try_next(to, scene, stage.namespace, stage.address)
    return held


def _unfit(plan: "Plan") -> str:
    """Why the demo cannot be shown on this cluster; "": it can."""
    if plan.proxy_mode != "iptables":
        return f"follows iptables' chains, here the mode is {plan.proxy_mode}"
    if plan.families[0] != "IPv4":
        return "shows IPv4, here the Services get IPv6 addresses"
    return ""


@asynccontextmanager
async def _scene(to: "Renderer", name: str, nodes: int, keep: bool) -> AsyncIterator[Scene]:
    """The cluster that runs, or one that is brought up here and taken away at the end."""
    from clusterip.lab.down import take_away
    from clusterip.lab.network import usual_ip_family
    from clusterip.lab.plan import DEFAULT_NAME, Plan, checked
    from clusterip.lab.state import locked, state_of
    from clusterip.lab.up import preflight, standing

    for candidate in (name,) if name else (DEFAULT_NAME, OWN_NAME):
        state = state_of(candidate)
        plan = standing(state).plan
        if plan and (why := _unfit(plan)):
            if candidate in (name, OWN_NAME):
                hint = "clusterip demo --name another, which is then brought up for it"
                raise BadInput(f"cluster {candidate}: the demo {why}", hint)
        elif plan:
            yield Scene(candidate, state, plan, own=False, keep=keep)
            return
    own = checked(Plan(name=name or OWN_NAME, nodes=nodes, ip_family=usual_ip_family()))
    state = state_of(own.name)
    preflight(own)
    with locked(own.name):  # held throughout: nobody else's `up` or `down` of this name comes between
        try:
            await _bring_up(to, own, state)
            yield Scene(own.name, state, own, own=True, keep=keep)
        finally:
            if not keep:
                to.stop_waiting()
                await take_away(state)
                to.say(f"Cluster {own.name} is taken away.", style="dim")


async def _bring_up(to: "Renderer", plan: "Plan", state: "State") -> None:
    from clusterip.lab.demo.values import Wait
    from clusterip.lab.down import take_away
    from clusterip.lab.files import Given
    from clusterip.lab.up import Rise, standing

    to.say(f"No cluster is up, so we bring up one of {plan.nodes} nodes.")
    if standing(state).remains:
        await take_away(state)
    start = time.monotonic()
    for step in Rise(plan, state, Given({}, {})).steps(wait=True):
        to.show(Wait(step.title))
        await step.run()
    to.say(f"It is up, after {time.monotonic() - start:.1f} s.")
    to.say("")


def _try_next(to: "Renderer", scene: Scene, namespace: str, address: str) -> None:
    option = "" if scene.name == "clusterip" else f" --name {scene.name}"
    if scene.keep:
        take_down = f"clusterip down{option}" if scene.own else f"kubectl delete namespace {namespace}"
        to.commands(
            "Try next: all of it is still there.",
            (
                f"export KUBECONFIG=$(clusterip kubeconfig{option})",
                f"kubectl config set-context --current --namespace={namespace}",
                "kubectl get pods,services,endpointslices",
                f"clusterip exec{option} {namespace}/client -- curl -s http://{address}/hostname",
                f"clusterip exec{option} node-1 -- conntrack -L -d {address}",
                f"clusterip check{option}",
                take_down,
            ),
        )
        return
    first = ("clusterip up", "clusterip demo --keep") if scene.own else (f"clusterip demo{option} --keep",)
    to.commands(
        "Try next:",
        (
            *first,
            f"export KUBECONFIG=$(clusterip kubeconfig{'' if scene.own else option})",
            "kubectl create deployment app --image=clusterip/echo --replicas=3",
            "kubectl expose deployment app --port=80 --target-port=8080",
            f"clusterip exec{'' if scene.own else option} client -- curl -s http://app/hostname",
            f"clusterip check{'' if scene.own else option}",
        ),
    )
