"""Where `clusterip exec` runs a command: on a node, on the control plane, on this machine, or in a pod."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Never, TypeAlias

from clusterip.errors import BadInput, Unavailable
from clusterip.lab.cgroups import born_in, of_member
from clusterip.lab.components import environment
from clusterip.lab.plan import CONTROL_PLANE, Plan
from clusterip.lab.state import State

HOST = "host"


@dataclass(frozen=True, slots=True)
class Member:
    """A node, the control plane or the fabric: a network namespace."""

    name: str


@dataclass(frozen=True, slots=True)
class Host:
    """This machine's own namespace."""


@dataclass(frozen=True, slots=True)
class PodTarget:
    namespace: str
    name: str


Target: TypeAlias = Member | Host | PodTarget


def target(text: str, plan: Plan) -> Target:
    """A pod whose name is a node's is written with its namespace. Raises BadInput."""
    if text == HOST:
        return Host()
    if text in plan.members:
        return Member(text)
    if re.fullmatch(r"node-\d+", text):
        raise BadInput(f"{text}: the cluster has node-1 to node-{plan.nodes}", hint="clusterip status")
    namespace, slash, name = text.rpartition("/")
    if not name or (slash and not namespace) or "/" in namespace:
        hint = f"one of: POD, NAMESPACE/POD, node-1, {CONTROL_PLANE}, {HOST}"
        raise BadInput(f"{text!r}: not a place to run a command", hint)
    return PodTarget(namespace or "default", name)


def become(argv: Sequence[str], plan: Plan, state: State, where: Member | Host) -> Never:
    """Replaces this process by the command, so its exit status, terminal and signals are its own.

    `ip netns exec` also shows the namespace's own links under /sys. Raises Unavailable.
    """
    if isinstance(where, Member):
        full = [*born_in(of_member(plan, where.name)), "ip", "netns", "exec", plan.netns(where.name), *argv]
        env = {**os.environ, **environment(plan, state, where.name)}
    else:
        full, env = list(argv), dict(os.environ)
    try:
        os.execvpe(full[0], full, env)  # noqa: S606  (this is what the user asks for)
    except OSError as error:
        raise Unavailable(f"{full[0]}: {error.strerror}") from error
