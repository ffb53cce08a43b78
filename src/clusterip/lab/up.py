"""Brings a cluster up, step by step; each step ends when what it makes works."""

import os
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from clusterip.client.api import Api
from clusterip.client.kubeconfig import load
from clusterip.dataplane.ipvs import Config as IPVSConfig
from clusterip.dataplane.ipvs import apply as ipvs
from clusterip.errors import BadInput, Unavailable
from clusterip.kernel import netns
from clusterip.kernel.ipvs import IPVS
from clusterip.lab import cgroups, deploy, down, files, network
from clusterip.lab.components import components
from clusterip.lab.plan import API_PORT, CONTROL_PLANE, Plan
from clusterip.lab.processes import alive
from clusterip.lab.state import State, write
from clusterip.lab.wait import Waiter
from clusterip.proxy.config import ProxyConfig

PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux", "iptables": "iptables", "conntrack": "conntrack"}


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    run: Callable[[], Awaitable[str]]  # what there is to say of it, or ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is there of a cluster before `up` begins."""

    plan: Plan | None = None  # the plan of one that runs
    remains: str = ""  # what a crash left, in words


def standing(state: State) -> Standing:
    """A cluster runs while its supervisor does; anything else that is there is a remainder."""
    supervision = state.supervision()
    plan = state.plan()
    if plan is not None and supervision is not None and alive(supervision.supervisor) and state.kubeconfig.exists():
        return Standing(plan=plan)
    return Standing(remains=down.remains(state))


def preflight(plan: Plan) -> None:
    """Raises Unavailable for what a cluster cannot do without."""
    if os.geteuid() != 0:
        raise Unavailable("clusterip up: makes network namespaces, which needs root", hint="sudo clusterip up")
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise Unavailable(f"{program}: no such program", hint=f"apt-get install {package}")
    if not os.path.exists("/proc/self/ns/net"):
        raise Unavailable("network namespaces: this kernel has none", hint="it needs CONFIG_NET_NS")
    if "IPv6" in plan.families and not network.has_ipv6():
        raise Unavailable(f"--ip-family {plan.ip_family}: this kernel has no IPv6", hint="--ip-family ipv4")
    if plan.iptables_variant and shutil.which(f"iptables-{plan.iptables_variant}") is None:
        raise Unavailable(f"iptables-{plan.iptables_variant}: no such program", hint="apt-get install iptables")


async def check_mode(plan: Plan, config: ProxyConfig) -> None:
    """Raises Unavailable if this machine cannot do the proxy's mode and nothing takes its place: IPVS.

    In a namespace of its own: a scheduler is tried with a virtual server, and the machine's own namespace gets none,
    not even for a moment.
    """
    if config.mode != "ipvs":
        return
    with IPVS():  # most kernels that cannot do it have none at all, and then nothing is made
        pass
    space = plan.netns("check")
    netns.delete(space)  # of one that was killed
    netns.create(space)
    try:
        await ipvs.check(config.ipvs.scheduler or IPVSConfig().scheduler, space)
    finally:
        netns.delete(space)


def refuse_other(wanted: Plan, running: Plan) -> None:
    """Raises BadInput if the running cluster is not the one that is wanted."""
    fields = [f for f in Plan.__struct_fields__ if getattr(wanted, f) != getattr(running, f)]
    if fields:
        said = ", ".join(f"{f.replace('_', ' ')} {getattr(running, f)!r}" for f in fields)
        name = "" if wanted.name == Plan().name else f" --name {wanted.name}"
        raise BadInput(f"cluster {wanted.name}: is up already, with {said}", hint=f"clusterip down{name}, then up")


class Rise:
    """One going up. Its steps are to be run in order."""

    def __init__(self, plan: Plan, state: State, given: files.Given) -> None:
        self._plan = plan
        self._state = state
        self._given = given
        self._waiter = Waiter(state)

    def __repr__(self) -> str:
        return f"Rise({self._plan.name})"

    def makes(self) -> tuple[Step, ...]:
        """The steps that make something: run once."""
        return (Step("network", self._network), Step("processes", self._processes))

    def waits(self, *, wait: bool) -> tuple[Step, ...]:
        """The steps that wait until all works, or with `wait` off only the API server: may be run again."""
        rest = (
            Step(f"{self._plan.nodes} node{'s' * (self._plan.nodes > 1)}", self._nodes),
            Step("cluster DNS", self._dns),
            Step("client pod", self._client),
            Step("Services on every node", self._proxies),
        )
        return (Step("API server", self._api), *(rest if wait else ()))

    def steps(self, *, wait: bool) -> tuple[Step, ...]:
        return (*self.makes(), *self.waits(wait=wait))

    async def _network(self) -> str:
        await network.build(self._plan)
        return f"{len(self._plan.members)} namespaces"

    async def _processes(self) -> str:
        with ExitStack() as stack:
            loopback = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
            with netns.inside(self._plan.netns(CONTROL_PLANE)):
                fabric = [stack.enter_context(_listener(address)) for address in self._plan.control_plane_ips]
            groups = cgroups.make(self._plan)
            files.write_all(self._plan, self._state, self._given, loopback.getsockname()[1])
            for listener in (loopback, *fabric):
                listener.set_inheritable(True)
            numbers = (loopback.fileno(), *(listener.fileno() for listener in fabric))
            made = components(self._plan, self._state, numbers, groups)
            write(self._state.directory / "components.json", msgspec.json.encode(made))
            leave_supervisor(self._state)
        # Last: without it, whatever is there is a remainder.
        self._state.write_plan(self._plan)
        return f"{len(made)} processes"

    async def _api(self) -> str:
        connection = load(str(self._state.kubeconfig))
        async with Api(connection, user_agent="clusterip-up") as api:
            await self._waiter.api(api)
            await deploy.create(api, self._plan)
        return connection.server

    async def _nodes(self) -> str:
        async with Api(load(str(self._state.kubeconfig)), user_agent="clusterip-up") as api:
            await self._waiter.nodes(api, self._plan.node_names)
        return ""

    async def _dns(self) -> str:
        async with Api(load(str(self._state.kubeconfig)), user_agent="clusterip-up") as api:
            await self._waiter.endpoints(api, "kube-system", "kube-dns")
        return ", ".join(self._plan.dns_ips)

    async def _client(self) -> str:
        async with Api(load(str(self._state.kubeconfig)), user_agent="clusterip-up") as api:
            pod = await self._waiter.pod(api, "default", deploy.CLIENT)
        return f"{', '.join(ip.ip for ip in pod.status.pod_ips)} on {pod.spec.node_name}"

    async def _proxies(self) -> str:
        async with Api(load(str(self._state.kubeconfig)), user_agent="clusterip-up") as api:
            await self._waiter.proxies(api, self._plan)
        return ""


def _listener(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, API_PORT), family=family, backlog=512)


def leave_supervisor(state: State) -> None:
    """It outlives us, so it is no child that an event loop looks after."""
    log = str(state.log_of("supervisor"))
    argv = [sys.executable, "-m", "clusterip.lab.supervisor", str(state.directory)]
    os.posix_spawn(
        sys.executable,
        argv,
        os.environ,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
