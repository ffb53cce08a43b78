"""The files of a cluster: certificates, tokens, kubeconfigs, the proxy's configuration, images."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from clusterip.errors import BadInput, Unavailable
from clusterip.lab import cgroups
from clusterip.lab.plan import API_PORT, DOMAIN, METRICS_PORT, RANGES, Plan
from clusterip.lab.state import State, write
from clusterip.node import images as image_table
from clusterip.proxy import configfile, rules
from clusterip.proxy.config import ProxyConfig

if TYPE_CHECKING:
    from clusterip.lab.certificates import Authority

ADMIN, CONTROLLERS, PROXY = "admin", "controllers", "proxy"
# user of a kubeconfig -> name and groups, as in Kubernetes; nodes come on top
USERS: Mapping[str, tuple[str, str]] = {
    ADMIN: ("kubernetes-admin", "system:masters"),
    CONTROLLERS: ("system:kube-controller-manager", "system:authenticated"),
    PROXY: ("system:kube-proxy", "system:authenticated"),
}
IPTABLES = tuple(f"{family}{verb}" for family in ("iptables", "ip6tables") for verb in ("", "-save", "-restore"))


@dataclass(frozen=True, slots=True)
class Given:
    """Files of the user's that go into the cluster's own, as documents."""

    proxy: Mapping[str, object]
    images: Mapping[str, object]


def write_all(plan: Plan, state: State, given: Given, loopback_port: int) -> None:
    """`loopback_port`: where this machine reaches the API server on 127.0.0.1."""
    from clusterip.lab.certificates import Authority, token  # brings cryptography along; most only ask for paths

    state.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    state.directory.chmod(0o700)
    state.logs.mkdir(exist_ok=True)
    authority = Authority(plan.name)
    write(state.pki / "ca.crt", authority.certificate)
    names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{DOMAIN}",
        "localhost",
        "127.0.0.1",
        *plan.control_plane_ips,
        plan.api_service_ip,
    )
    _write_pair(state, authority, "apiserver", names)
    tokens = {user: token() for user in (*USERS, *plan.node_names)}
    for node in plan.node_names:
        _write_pair(state, authority, node, (node, *plan.node_ips(node)))
    write(state.pki / "agents.token", token() + "\n")  # what the API server shows to the node agents
    write(state.pki / "tokens.csv", "".join(_token_line(user, secret) for user, secret in tokens.items()))
    for user, secret in tokens.items():
        # The admin comes from any shell of this machine, the others are on the fabric.
        server = f"https://127.0.0.1:{loopback_port}" if user == ADMIN else api_inside(plan)
        write(
            state.directory / f"{user}.kubeconfig", kubeconfig(plan.name, user, (server, authority.certificate), secret)
        )
    for node in plan.node_names:
        write(state.proxy_configuration_of(node), proxy_config(plan, state, node, given.proxy))
    write(state.directory / "images.yaml", yaml.safe_dump(dict(given.images), sort_keys=False))
    if plan.iptables_variant:
        _choose_iptables(state.directory / "bin", plan.iptables_variant)


def api_inside(plan: Plan) -> str:
    """The URL of the API server on the fabric."""
    address = plan.control_plane_ips[0]
    return f"https://{f'[{address}]' if ':' in address else address}:{API_PORT}"


def _token_line(user: str, secret: str) -> str:
    name, groups = USERS.get(user, (f"system:node:{user}", "system:nodes"))
    return f'{secret},{name},"{groups}"\n'


def _write_pair(state: State, authority: "Authority", name: str, names: tuple[str, ...]) -> None:
    pair = authority.serving(name, names)
    write(state.pki / f"{name}.crt", pair.certificate)
    write(state.pki / f"{name}.key", pair.key)


def kubeconfig(cluster: str, user: str, server: tuple[str, bytes], secret: str) -> str:
    """`server`: its URL, and the PEM of the authority that signed its certificate."""
    from base64 import b64encode

    url, authority = server
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": url, "certificate-authority-data": b64encode(authority).decode()},
            }
        ],
        "users": [{"name": f"{user}@{cluster}", "user": {"token": secret}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": f"{user}@{cluster}"}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(document, sort_keys=False)


def proxy_config(plan: Plan, state: State, node: str, given: Mapping[str, object]) -> str:
    """kube-proxy's configuration file for one node: the user's, with what the node must have of its own."""
    document: dict[str, object] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": plan.proxy_mode,
        "clusterCIDR": ",".join(str(RANGES[family].pods) for family in plan.families),
        # Most CNI plug-ins masquerade what a pod sends to another node's address; here nothing does. If that node took
        # the pod for one of its own, it would send the packet on to any endpoint, and the answer would pass it by.
        **({} if "clusterCIDR" in given else {"detectLocalMode": "NodeCIDR"}),
        # These are settings of the whole machine, which a node's namespace cannot, and must not, change.
        "conntrack": {"maxPerCore": 0, "min": 0},
        # Nothing is bound to it: it says which family is the first.
        "bindAddress": "0.0.0.0" if plan.families[0] == "IPv4" else "::",  # noqa: S104
        "metricsBindAddress": f"127.0.0.1:{METRICS_PORT}",
        **given,
        "hostnameOverride": node,
    }
    kubeconfig_file = {"kubeconfig": str(state.directory / f"{PROXY}.kubeconfig")}
    document["clientConnection"] = _section(given, "clientConnection") | kubeconfig_file
    # kube-proxy's own is a second. Here people watch, and the clusters are small.
    for section in ("iptables", "nftables", "ipvs"):
        document[section] = {"minSyncPeriod": "100ms"} | _section(given, section)
    document["ebpf"] = _sockets(plan, state, node) | _section(given, "ebpf")
    return yaml.safe_dump(document, sort_keys=False)


def socket_maps(state: State, node: str) -> Path:
    """Where eBPF mode keeps what outlives it."""
    return state.directory / "bpf" / node


def _sockets(plan: Plan, state: State, node: str) -> dict[str, object]:
    """What eBPF mode must not share with other nodes of the machine."""
    group = cgroups.of_member(plan, node)
    own: dict[str, object] = {"directory": str(socket_maps(state, node))}
    return own | ({"cgroup": group} if group else {})


def _section(given: Mapping[str, object], name: str) -> dict[str, object]:
    section = given.get(name)
    return dict(section) if isinstance(section, Mapping) else {}


def read_given(plan: Plan, state: State, proxy: str, images: str) -> Given:
    """From the paths of the user's files ("": none). Raises BadInput for what a proxy or a node agent would refuse:
    it is better said now than by the logs of processes that keep ending."""
    given = Given(proxy=read_mapping(proxy, "--proxy-config"), images=read_mapping(images, "--images"))
    image_table.parse(yaml.safe_dump(dict(given.images)), f"--images {images}")
    effective(plan, state, given, f"--proxy-config {proxy}")
    return given


def effective(plan: Plan, state: State, given: Given, source: str = "") -> ProxyConfig:
    """What the proxies will take for their configuration, but for what is each node's own. Raises BadInput, in which
    `source` names the user's file."""
    return rules.complete(configfile.read(proxy_config(plan, state, "node-1", given.proxy).encode(), source), source)


def read_mapping(path: str, option: str) -> Mapping[str, object]:
    """A YAML file that holds one mapping; {} for no path. Raises BadInput."""
    if not path:
        return {}
    try:
        document = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506  (both are safe)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{option} {path}: cannot be read, {reason}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{option} {path}: is not YAML, {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise BadInput(f"{option} {path}: holds no mapping")
    return document


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _choose_iptables(folder: Path, variant: str) -> None:
    """A folder in which `iptables` is the variant asked for. Everything on a node finds it first."""
    folder.mkdir(exist_ok=True)
    for name in IPTABLES:
        stem, _, verb = name.partition("-")
        program = shutil.which(f"{stem}-{variant}" + (f"-{verb}" if verb else ""))
        if program is None:
            raise Unavailable(f"{stem}-{variant}: no such program", hint="apt-get install iptables")
        link = folder / name
        link.unlink(missing_ok=True)
        os.symlink(program, link)
