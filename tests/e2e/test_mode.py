"""`clusterip mode`: nodes change their dataplane while they run, and keep it."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from tests.guest.guest import has_ipvs

from .conftest import Cluster, proxy_pid, until, up, with_web

pytestmark = pytest.mark.e2e
TOOK = r"in \d+\.\d s \(loading \d+\.\d\d s, verifying \d+\.\d\d s, withdrawing \d+\.\d\d s\)"


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with up("--nodes", "2", "--proxy-mode", "iptables") as made:
        yield with_web(made)


def modes(cluster: Cluster) -> dict[str, str]:
    lines = cluster.clusterip("mode").stdout.splitlines()
    assert lines[0].split() == ["NODE", "MODE"]
    return {node: said.strip() for node, _, said in (line.partition(" ") for line in lines[1:])}


def serves(cluster: Cluster) -> None:
    address = cluster.field("service", "web", path=".spec.clusterIP")
    for node in ("node-1", "node-2"):
        assert cluster.exec(node, "curl", "-sf", "-m", "10", f"http://{address}/hostname").startswith("web-")


def test_a_node_changes_and_the_others_stay_and_a_restart_keeps_it(two: Cluster) -> None:
    two.clusterip("mode", "--all", "iptables")  # whatever ran before
    assert modes(two) == {"node-1": "iptables", "node-2": "iptables"}
    said = two.clusterip("mode", "node-1", "nftables").stdout
    assert re.fullmatch(rf"node-1: iptables -> nftables {TOOK}\n", said), said
    assert modes(two) == {"node-1": "nftables", "node-2": "iptables"}
    serves(two)
    assert "KUBE-SERVICES" not in two.exec("node-1", "iptables-save")
    assert two.clusterip("mode", "node-1", "nftables").stdout == "node-1: nftables already\n"
    os.kill(proxy_pid(two), signal.SIGKILL)
    until(lambda: modes(two)["node-1"] == "nftables")
    said = two.clusterip("up", "--nodes", "2", "--proxy-mode", "iptables").stdout
    assert "is up already" in said
    assert modes(two) == {"node-1": "nftables", "node-2": "iptables"}


def test_all_nodes_change_one_after_the_other(two: Cluster) -> None:
    lines = two.clusterip("mode", "--all", "ebpf").stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["node-1", "node-2"]
    assert modes(two) == {"node-1": "ebpf", "node-2": "ebpf"}
    serves(two)
    two.clusterip("mode", "--all", "nftables")
    serves(two)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("node-9", "nftables"), "error: node-9: no such node; the cluster has node-1 to node-2"),
        (("node-1", "userspace"), "error: userspace: unknown mode\nhint: one of: iptables, nftables, ipvs, ebpf"),
        (("nftables",), "it takes a node and a mode\nhint: clusterip mode node-1 nftables"),
        (("--all", "node-1", "nftables"), "--all takes one word, the mode"),
    ],
)
def test_words_that_mean_nothing_are_told_so(two: Cluster, words: tuple[str, ...], said: str) -> None:
    done = two.clusterip("mode", *words, check=False)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.skipif(has_ipvs(), reason="this kernel has IPVS")
def test_a_kernel_that_cannot_do_it_is_named_and_the_node_goes_on(two: Cluster) -> None:
    # Connections that sockets of eBPF mode began would be waited for, if there were anything to wait for.
    two.clusterip("mode", "--all", "ebpf")
    serves(two)
    two.clusterip("mode", "--all", "nftables")
    before = modes(two)
    done = two.clusterip("mode", "--all", "ipvs", check=False)
    assert done.returncode == 1
    assert f"node-1: stays in mode {before['node-1']}: IPVS: this kernel has none" in done.stderr
    assert "not tried: node-2" in done.stderr
    assert "nftables does the same" in done.stderr
    assert modes(two) == before
    serves(two)
