"""The files of a cluster: private, complete, and readable by those they are for."""

import stat
from pathlib import Path

import pytest
import yaml

from clusterip.apiserver.auth import load_tokens
from clusterip.client.kubeconfig import load
from clusterip.errors import BadInput
from clusterip.lab.files import Given, proxy_config, read_given, read_mapping, write_all
from clusterip.lab.plan import Plan
from clusterip.lab.state import State

PLAN = Plan(name="test", nodes=2)


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State("test", tmp_path / "test")
    write_all(PLAN, made, Given(proxy={}, images={}), 4711)
    return made


def test_nobody_else_can_read_them(state: State) -> None:
    assert stat.S_IMODE(state.directory.stat().st_mode) == 0o700
    secrets = [p for p in state.directory.rglob("*") if p.is_file()]
    assert secrets
    assert {stat.S_IMODE(p.stat().st_mode) for p in secrets} == {0o600}


@pytest.mark.parametrize(
    ("user", "server"),
    [
        ("admin", "https://127.0.0.1:4711"),
        ("controllers", "https://192.168.50.1:6443"),
        ("node-2", "https://192.168.50.1:6443"),
    ],
)
def test_each_user_has_a_kubeconfig_to_where_it_finds_the_server(state: State, user: str, server: str) -> None:
    connection = load(str(state.directory / f"{user}.kubeconfig"))
    assert connection.server == server
    assert connection.ca_data == (state.pki / "ca.crt").read_bytes()


@pytest.mark.parametrize(
    ("user", "name", "group"),
    [("admin", "kubernetes-admin", "system:masters"), ("node-1", "system:node:node-1", "system:nodes")],
)
def test_the_server_knows_each_token(state: State, user: str, name: str, group: str) -> None:
    tokens = load_tokens(state.pki / "tokens.csv")
    token = load(str(state.directory / f"{user}.kubeconfig")).token
    identity = tokens.identify(f"Bearer {token}")
    assert (identity.user, identity.groups) == (name, (group,))


def test_a_users_proxy_configuration_is_kept_but_for_what_is_the_nodes_own(state: State) -> None:
    given = {
        "iptables": {"syncPeriod": "3s"},
        "hostnameOverride": "elsewhere",
        "clientConnection": {"kubeconfig": "/nowhere", "qps": 7},
        "conntrack": {"min": 5},
    }
    made = yaml.safe_load(proxy_config(PLAN, state, "node-1", given))
    assert made["iptables"] == {"minSyncPeriod": "100ms", "syncPeriod": "3s"}
    assert made["hostnameOverride"] == "node-1"
    assert made["clientConnection"] == {"kubeconfig": str(state.directory / "proxy.kubeconfig"), "qps": 7}
    assert made["conntrack"] == {"min": 5}
    assert (made["clusterCIDR"], made["detectLocalMode"]) == ("10.244.0.0/16,fd00:1::/32", "NodeCIDR")
    assert (made["apiVersion"], made["kind"]) == ("kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration")


def test_a_users_range_of_pods_is_detected_as_kube_proxy_would(state: State) -> None:
    made = yaml.safe_load(proxy_config(PLAN, state, "node-1", {"clusterCIDR": "10.0.0.0/8"}))
    assert made["clusterCIDR"] == "10.0.0.0/8"
    assert "detectLocalMode" not in made


def test_with_a_variant_iptables_is_that_one(tmp_path: Path) -> None:
    state = State("test", tmp_path / "test")
    write_all(Plan(name="test", nodes=1, iptables_variant="legacy"), state, Given({}, {}), 1)
    assert (state.directory / "bin" / "iptables").readlink().name == "iptables-legacy"
    assert (state.directory / "bin" / "ip6tables-restore").readlink().name == "ip6tables-legacy-restore"


@pytest.mark.parametrize(
    ("content", "said"), [("- a", "holds no mapping"), ("a: [", "is not YAML"), (b"\xff\xfe", "not UTF-8")]
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadInput, match=said):
        read_mapping(str(path), "--images")


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("proxy", "iptables: {syncPeriod: never}", "iptables.syncPeriod"),
        ("proxy", "mode: magic", "mode"),
        ("images", "nginx: 5", "nginx"),
    ],
)
def test_what_a_process_would_refuse_later_is_refused_before(
    tmp_path: Path, option: str, content: str, said: str
) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(content)
    paths = {"proxy": "", "images": "", option: str(path)}
    with pytest.raises(BadInput, match=said):
        read_given(PLAN, State("test", tmp_path), paths["proxy"], paths["images"])


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_mapping("/nowhere", "--images")
