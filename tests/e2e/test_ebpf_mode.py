"""eBPF mode, as a person meets it: a cluster of its own, whatever mode the other tests are run in."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import Cluster, proxy_pid, until, up, with_web

pytestmark = pytest.mark.e2e

# Connects to argv[1]:80 for argv[2] seconds; prints how often, how often it failed, and who it thinks it spoke to.
CONNECTS = """
import json, socket, sys, time
count, failed, peers = 0, 0, set()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    count += 1
    try:
        with socket.create_connection((sys.argv[1], 80), timeout=3) as s:
            peers.add(s.getpeername()[0])
    except OSError:
        failed += 1
print(json.dumps([count, failed, sorted(peers)]))
"""


@pytest.fixture(scope="module")
def small() -> Iterator[Cluster]:
    with up("--nodes", "1", "--proxy-mode", "ebpf") as made:
        yield with_web(made)


def address(cluster: Cluster) -> str:
    return cluster.field("service", "web", path=".spec.clusterIP")


@pytest.mark.parametrize("client", ["client", "node-1"])
def test_the_client_sees_the_clusterip_and_conntrack_does_not(small: Cluster, client: str) -> None:
    until(lambda: small.python(client, CONNECTS, address(small), "0.1")[1] == 0)
    small.exec("node-1", "conntrack", "-F")  # another test, without programs, leaves entries for two minutes
    count, failed, peers = small.python(client, CONNECTS, address(small), "1")
    assert count > 10
    assert failed == 0
    assert peers == [address(small)]
    assert address(small) not in small.exec("node-1", "conntrack", "-L")


def test_a_killed_proxy_costs_no_connection(small: Cluster) -> None:
    until(lambda: small.python("client", CONNECTS, address(small), "0.1")[1] == 0)
    before = proxy_pid(small)
    os.kill(before, signal.SIGKILL)
    count, failed, _ = small.python("client", CONNECTS, address(small), "3")
    assert count > 100
    assert failed == 0
    until(lambda: proxy_pid(small) not in (0, before))


def test_without_endpoints_a_client_is_refused_at_once(small: Cluster) -> None:
    small.kubectl("create", "service", "clusterip", "nobody", "--tcp=80:8080")
    nobody = small.field("service", "nobody", path=".spec.clusterIP")

    def refused() -> bool:
        started = time.monotonic()
        tried = small.clusterip("exec", "client", "--", "curl", "-s", "-m", "3", f"http://{nobody}", check=False)
        return tried.returncode == 7 and time.monotonic() - started < 2

    until(refused)
    small.kubectl("delete", "service", "nobody")  # a diagnosis would name it


def test_the_mode_is_told(small: Cluster) -> None:
    assert small.exec("node-1", "curl", "-s", "localhost:10249/proxyMode") == "ebpf"


def test_a_bundle_of_the_node_answers_as_the_node_does(small: Cluster, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "clusterip", "collect", "--name", small.name, "--node", "node-1")
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    for asked in (("--node", "node-1"), ("--rules", str(bundle), "--node", "node-1")):
        answer = json.loads(small.clusterip("trace", "client", "web:80", *asked, "-o", "json").stdout)
        assert answer["steps"][0]["hook"] == "socket"
        assert {o["probability"] for o in answer["outcomes"]} == {"1/2"}
        assert small.clusterip("verify", *asked).stdout.startswith("equal")
    found = json.loads(small.clusterip("doctor", str(bundle), "-o", "json").stdout)
    assert {finding["level"] for finding in found["findings"]} <= {"I"}
    assert "maps of eBPF mode" in {given["kind"] for given in found["inputs"]}


@contextmanager
def stopped(cluster: Cluster) -> Iterator[None]:
    """Nobody heals anything meanwhile; and all is healed afterwards."""
    pid = proxy_pid(cluster)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: verdict(cluster) == "equal")


def verdict(cluster: Cluster) -> str:
    return cluster.clusterip("verify", "--node", "node-1", check=False).stdout.partition(" ")[0]


def test_verify_tells_a_program_that_was_detached_by_what_clients_see(small: Cluster) -> None:
    links = Path(small.kubeconfig).parent / "bpf" / "node-1" / "links"
    with stopped(small):
        (links / "connect4").unlink()
        (links / "recvmsg4").unlink()
        found = small.clusterip("verify", "--node", "node-1", "-o", "json", check=False)
        assert found.returncode == 1
        differences = json.loads(found.stdout)["differences"]
        assert {d["object"]: d["share"] for d in differences} == {"hook connect4": "0/1", "hook recvmsg4": "1/1"}
        # As it says: another way, the same outcome.
        assert small.python("client", CONNECTS, address(small), "0.3")[1] == 0
        assert address(small) in small.exec("node-1", "conntrack", "-L")


def test_verify_proves_the_rules_and_remarks_on_a_host_that_forwards_nothing(small: Cluster) -> None:
    small.exec("node-1", "sysctl", "-qw", "net.ipv4.ip_forward=0")
    try:
        found = small.clusterip("verify", "--node", "node-1").stdout
    finally:
        small.exec("node-1", "sysctl", "-qw", "net.ipv4.ip_forward=1")
    assert found.startswith("equal")
    assert "remark  net.ipv4.ip_forward is 0" in found
    assert f"clusterip doctor --node node-1 --name {small.name}" in found


def test_where_the_machine_cannot_nftables_serves_and_the_log_says_why(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = tmp_path_factory.mktemp("proxy") / "config.yaml"
    config.write_text("ebpf:\n  cgroup: /nowhere\n")
    with up("--nodes", "1", "--proxy-mode", "ebpf", "--proxy-config", str(config)) as made:
        assert made.exec("node-1", "curl", "-s", "localhost:10249/proxyMode") == "nftables"
        (log,) = (Path(made.kubeconfig).parent / "log").glob("*proxy*node-1*")
        assert "/nowhere is no cgroup of version 2" in log.read_text()
        assert "reachable" in made.exec("client", "sh", "-c", "getent hosts kubernetes >/dev/null && echo reachable")
