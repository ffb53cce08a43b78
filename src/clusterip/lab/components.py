"""The processes of a cluster: what each is called, where it runs, and its command line. Pure."""

import sys
from dataclasses import dataclass

import msgspec

from clusterip.lab.plan import API_PORT, CONTROL_PLANE, CONTROL_PLANE_IP, Plan, node_ip, pod_cidr, prefix
from clusterip.lab.state import State

PROGRAM = (sys.executable, "-m", "clusterip")


class Component(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    argv: tuple[str, ...]
    netns: str
    environment: dict[str, str] = {}  # on top of the supervisor's own
    listen_fds: tuple[int, ...] = ()  # listening sockets it is given, by their numbers


@dataclass(frozen=True, slots=True)
class Sockets:
    """Opened by `up` and held by the supervisor: while the API server is started again, its callers wait in line."""

    loopback: int  # descriptor of the socket on the machine's own loopback


def components(plan: Plan, state: State, sockets: Sockets) -> tuple[Component, ...]:
    nodes = [made for node in plan.node_names for made in (_agent(plan, state, node), _proxy(plan, state, node))]
    return (_apiserver(plan, state, sockets), _controllers(plan, state), *nodes)


def environment(plan: Plan, state: State, member: str) -> dict[str, str]:
    """What makes `iptables` on a node the node's own: its variant, and a lock that it does not share with others."""
    found = {"XTABLES_LOCKFILE": str(state.directory / f"{member}.xtables.lock")}
    if plan.iptables_variant:
        found["PATH"] = f"{state.directory / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return found


def _apiserver(plan: Plan, state: State, sockets: Sockets) -> Component:
    argv = (
        *PROGRAM,
        "apiserver",
        *("--listen", f"{CONTROL_PLANE_IP}:{API_PORT}"),
        *("--listen-fd", str(sockets.loopback)),
        *("--data", str(state.directory / "store")),
        *("--tls-cert", str(state.pki / "apiserver.crt")),
        *("--tls-key", str(state.pki / "apiserver.key")),
        *("--client-ca", str(state.pki / "ca.crt")),
        *("--token-file", str(state.pki / "tokens.csv")),
        *("--service-cidr", plan.service_cidr),
        *("--service-node-port-range", plan.node_ports),
        *("--advertise-address", CONTROL_PLANE_IP),
    )
    return Component(name="apiserver", argv=argv, netns=plan.netns(CONTROL_PLANE), listen_fds=(sockets.loopback,))


def _controllers(plan: Plan, state: State) -> Component:
    argv = (*PROGRAM, "controllers", "--kubeconfig", str(state.directory / "controllers.kubeconfig"))
    return Component(name="controllers", argv=argv, netns=plan.netns(CONTROL_PLANE))


def _agent(plan: Plan, state: State, node: str) -> Component:
    argv = (
        *PROGRAM,
        "node",
        *("--name", node),
        *("--kubeconfig", str(state.directory / f"{node}.kubeconfig")),
        *("--address", node_ip(node)),
        *("--pod-cidr", pod_cidr(node)),
        *("--netns-prefix", prefix(plan.name)),
        *("--images", str(state.directory / "images.yaml")),
        *("--cluster-dns", plan.dns_ip),
        *("--tls-cert", str(state.pki / f"{node}.crt")),
        *("--tls-key", str(state.pki / f"{node}.key")),
        *("--directory", str(state.directory / node)),
    )
    return Component(
        name=f"agent of {node}", argv=argv, netns=plan.netns(node), environment=environment(plan, state, node)
    )


def _proxy(plan: Plan, state: State, node: str) -> Component:
    argv = (*PROGRAM, "proxy", "--config", str(state.directory / f"{node}.proxy.yaml"))
    return Component(
        name=f"proxy of {node}", argv=argv, netns=plan.netns(node), environment=environment(plan, state, node)
    )
