"""The processes of a cluster: what each is called, where it runs, and its command line. Pure."""

import sys
from collections.abc import Mapping

import msgspec

from clusterip.lab.plan import API_PORT, CONTROL_PLANE, DOMAIN, Plan, prefix
from clusterip.lab.state import State

PROGRAM = (sys.executable, "-m", "clusterip")


class Component(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    argv: tuple[str, ...]
    netns: str
    environment: dict[str, str] = {}  # on top of the supervisor's own
    listen_fds: tuple[int, ...] = ()  # listening sockets it is given, by their numbers
    cgroup: str = ""  # path of the cgroup it is born in; "": its supervisor's


def components(plan: Plan, state: State, sockets: tuple[int, ...], cgroups: Mapping[str, str]) -> tuple[Component, ...]:
    """`sockets`: descriptors that the API server is to listen on. The supervisor holds them: while the server is
    started again, its callers wait in line instead of being refused. `cgroups`: of the nodes that have one."""
    nodes = [
        msgspec.structs.replace(made, cgroup=cgroups.get(node, ""))
        for node in plan.node_names
        for made in (_agent(plan, state, node), _proxy(plan, state, node))
    ]
    return (_apiserver(plan, state, sockets), _controllers(plan, state), *nodes)


def environment(plan: Plan, state: State, member: str) -> dict[str, str]:
    """What makes `iptables` on a node the node's own: its variant, and a lock that it does not share with others."""
    found = {"XTABLES_LOCKFILE": str(state.directory / f"{member}.xtables.lock")}
    if plan.iptables_variant:
        found["PATH"] = f"{state.directory / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return found


def _apiserver(plan: Plan, state: State, sockets: tuple[int, ...]) -> Component:
    argv = (
        *PROGRAM,
        "apiserver",
        *(word for fd in sockets for word in ("--listen-fd", str(fd))),
        *("--data-dir", str(state.directory / "store")),
        *("--tls-cert-file", str(state.pki / "apiserver.crt")),
        *("--tls-private-key-file", str(state.pki / "apiserver.key")),
        *("--token-auth-file", str(state.pki / "tokens.csv")),
        *("--kubelet-ca-file", str(state.pki / "ca.crt")),
        *("--kubelet-token-file", str(state.pki / "agents.token")),
        *("--service-cluster-ip-range", ",".join(map(str, plan.service_ranges))),
        *("--service-node-port-range", plan.node_ports),
        *("--advertise-address", plan.control_plane_ips[0]),
        *("--advertise-port", str(API_PORT)),
    )
    return Component(name="apiserver", argv=argv, netns=plan.netns(CONTROL_PLANE), listen_fds=sockets)


def _controllers(plan: Plan, state: State) -> Component:
    argv = (*PROGRAM, "controllers", "--kubeconfig", str(state.directory / "controllers.kubeconfig"))
    return Component(name="controllers", argv=argv, netns=plan.netns(CONTROL_PLANE))


def _agent(plan: Plan, state: State, node: str) -> Component:
    argv = (
        *PROGRAM,
        "node",
        *("--node-name", node),
        *("--node-ip", ",".join(plan.node_ips(node))),
        *("--pod-cidr", ",".join(plan.pod_cidrs(node))),
        *("--kubeconfig", str(state.directory / f"{node}.kubeconfig")),
        *("--state-dir", str(state.directory / node)),
        *("--images", str(state.directory / "images.yaml")),
        *("--cluster-dns", ",".join(plan.dns_ips)),
        *("--cluster-domain", DOMAIN),
        *("--tls-cert-file", str(state.pki / f"{node}.crt")),
        *("--tls-private-key-file", str(state.pki / f"{node}.key")),
        *("--token-file", str(state.pki / "agents.token")),
        *("--netns-prefix", prefix(plan.name)),
    )
    return Component(
        name=f"agent of {node}", argv=argv, netns=plan.netns(node), environment=environment(plan, state, node)
    )


def _proxy(plan: Plan, state: State, node: str) -> Component:
    argv = (*PROGRAM, "proxy", "--config", str(state.proxy_configuration_of(node)))
    return Component(
        name=f"proxy of {node}", argv=argv, netns=plan.netns(node), environment=environment(plan, state, node)
    )
