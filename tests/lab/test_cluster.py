"""Whole clusters: up, in use, damaged, up again, down; side by side; and nothing left."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterip.kernel import netns
from clusterip.lab import down, processes
from clusterip.lab.state import State, root

pytestmark = pytest.mark.e2e


class Lab:
    """A name for clusters, and `clusterip` used as from a shell."""

    def __init__(self) -> None:
        self.name = f"l{uuid.uuid4().hex[:6]}"
        self.prefix: tuple[str, ...] = ()  # of every command line

    @property
    def state(self) -> State:
        return State(self.name, root() / self.name)

    def __call__(self, command: str, *args: str, code: int | None = 0) -> str:
        argv = [*self.prefix, sys.executable, "-m", "clusterip", command, "--name", self.name, *args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
        assert code is None or done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def status(self, code: int | None = 0) -> Any:
        return json.loads(self("status", "-o", "json", code=code))

    def left(self) -> str:
        return down.remains(self.state)


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made("down")
    assert made.left() == ""


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    """Of two nodes, for the tests that only use a cluster."""
    made = Lab()
    try:
        made("up", "--nodes", "2")
        yield made
    finally:
        made("down")
    assert made.left() == ""


def machine() -> tuple[str, ...]:
    """Links, routes and rules of the machine's own namespace."""
    shown = ("ip -o link show", "ip route show table all", "ip rule show", "nft list ruleset", "iptables-legacy-save")
    return tuple(
        "\n".join(line for line in out.splitlines() if not line.startswith("#"))
        for command in shown
        if (out := subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout) is not None
    )


def until(claim: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def test_up_use_and_down_leave_the_machine_as_it_was(lab: Lab) -> None:
    before = machine()
    said = lab("up", "--nodes", "2")
    assert "client pod" in said
    assert machine() == before
    found = lab.status()
    assert found["well"]
    assert [node["ready"] for node in found["nodes"]] == [True, True]
    assert {c["name"] for c in found["components"]} == {
        "apiserver",
        "controllers",
        *(f"{what} of node-{n}" for what in ("agent", "proxy") for n in (1, 2)),
    }
    assert found["api"]["ranges"][0] == {"range": "10.96.0.0/16", "band": "static", "used": 2, "available": 254}
    assert "is up already" in lab("up", "--nodes", "2")
    assert "is up already, with nodes 2" in lab("up", "--nodes", "3", code=2)
    removed = lab("down")
    assert "removed" in removed
    assert "nothing to remove" in lab("down")
    assert lab.left() == ""
    assert not [name for name in netns.names() if name.startswith(f"{lab.name}.")]
    assert str(root() / lab.name) not in Path("/proc/self/mountinfo").read_text()
    assert machine() == before


def test_commands_run_where_they_are_told_and_their_exit_status_comes_back(running: Lab) -> None:
    assert "192.168.50.12/24" in running("exec", "node-2", "--", "ip", "-4", "address", "show", "eth0")
    assert "192.168.50.1/24" in running("exec", "control-plane", "--", "ip", "-4", "address", "show", "eth0")
    assert "10.96.0.10" in running("exec", "client", "--", "cat", "/etc/resolv.conf")
    assert running("exec", "default/client", "--", "hostname").strip() == "client"
    running("exec", "client", "--", "sh", "-c", "exit 7", code=7)
    running("exec", "node-1", "--", "sh", "-c", "exit 8", code=8)
    assert os.readlink("/proc/self/ns/net") in running("exec", "host", "--", "readlink", "/proc/self/ns/net")
    assert "hint" in running("exec", "node-3", "--", "true", code=2)
    assert "nobody" in running("exec", "nobody", "--", "true", code=1)
    argv = [sys.executable, "-m", "clusterip", "exec", "--name", running.name, "-i", "client", "--", "cat"]
    data = os.urandom(300_000)
    assert subprocess.run(argv, input=data, capture_output=True, timeout=60, check=True).stdout == data


def test_names_are_resolved_in_a_pod(running: Lab) -> None:
    found = running("exec", "client", "--", "getent", "ahostsv4", "kubernetes")
    assert found.startswith("10.96.0.1 ")
    found = running("exec", "client", "--", "getent", "ahostsv4", "kube-dns.kube-system.svc.cluster.local")
    assert found.startswith("10.96.0.10 ")
    start = time.monotonic()
    running("exec", "client", "--", "getent", "hosts", "nobody.nowhere", code=2)
    assert time.monotonic() - start < 5


def test_components_that_are_killed_come_back(lab: Lab) -> None:
    lab("up", "--nodes", "1")
    victims = lab.status()["components"]
    for victim in victims:
        os.kill(victim["pid"], signal.SIGKILL)
    until(lambda: all(c["restarts"] >= 1 and c["alive"] for c in lab.status(code=None)["components"]))
    until(lambda: lab.status(code=None)["well"])
    kubeconfig = lab("kubeconfig").strip()
    argv = ["kubectl", "--kubeconfig", kubeconfig, "get", "service", "kube-dns", "-n", "kube-system"]
    assert b"10.96.0.10" in subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout


def test_up_after_a_crash_cleans_what_it_finds(lab: Lab) -> None:
    lab("up", "--nodes", "1", "--no-wait")
    for process in down.supervisors(lab.state):
        processes.send(process, signal.SIGKILL)
        processes.wait_gone((process,), 5)
    (lab.state.directory / "cluster.json").write_text('{"name": "half')
    assert lab.left()
    assert "cleaned up what was left" in lab("up", "--nodes", "1")
    assert lab.status()["well"]


def test_who_interrupts_up_is_told_what_goes_on(lab: Lab) -> None:
    argv = [sys.executable, "-m", "clusterip", "up", "--name", lab.name, "--nodes", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        assert up.stdout
        assert up.stderr
        while not up.stdout.readline().startswith("processes"):
            assert up.poll() is None
        up.send_signal(signal.SIGINT)
        assert f"cluster {lab.name} goes on by itself; clusterip down --name {lab.name}" in up.stderr.read()
    assert up.returncode == 1
    until(lambda: lab.status(code=None)["well"])


def test_two_clusters_side_by_side_do_not_meet(lab: Lab) -> None:
    other = Lab()
    try:
        lab("up", "--nodes", "1")
        other("up", "--nodes", "1")
        kubectl = ["kubectl", "--kubeconfig", lab("kubeconfig").strip(), "create", "namespace", "only-here"]
        subprocess.run(kubectl, check=True, capture_output=True, timeout=60)
        kubectl = ["kubectl", "--kubeconfig", other("kubeconfig").strip(), "get", "namespaces", "-o", "name"]
        assert b"only-here" not in subprocess.run(kubectl, check=True, capture_output=True, timeout=60).stdout
        lab("down")
        assert other.status()["well"]
    finally:
        other("down")
    assert other.left() == ""


LOCAL_NODE_PORT = """
apiVersion: v1
kind: Service
metadata: {name: local}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  selector: {app: local}
  ports: [{port: 80, targetPort: 8080, nodePort: 30090}]
"""


def test_a_pod_that_asks_another_node_for_a_local_node_port_is_answered_every_time(running: Lab) -> None:
    kubectl = ("kubectl", "--kubeconfig", running("kubeconfig").strip())
    subprocess.run([*kubectl, "apply", "-f", "-"], input=LOCAL_NODE_PORT, text=True, check=True, timeout=60)
    deployment = ("create", "deployment", "local", "--image=clusterip/echo", "--replicas=2")
    for argv in (deployment, ("rollout", "status", "deployment", "local", "--timeout=60s")):
        subprocess.run([*kubectl, *argv], check=True, timeout=90)
    where = [*kubectl, "get", "pods", "-l", "app=local", "-o", "jsonpath={.items[*].spec.nodeName}"]
    assert sorted(subprocess.check_output(where, text=True).split()) == ["node-1", "node-2"]
    until(lambda: running("exec", "client", "--", "curl", "-sm1", "http://192.168.50.12:30090/hostname", code=None))
    script = "for i in $(seq 20); do curl -sfm2 -o /dev/null http://192.168.50.12:30090/hostname || exit 9; done"
    running("exec", "client", "--", "sh", "-c", script)


DNS_OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: heads}
spec:
  clusterIP: None
  selector: {app: member}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: member, labels: {app: member}}
spec:
  hostname: member-0
  subdomain: heads
  containers: [{name: c, image: clusterip/echo}]
---
apiVersion: v1
kind: Service
metadata: {name: out}
spec: {type: ExternalName, externalName: kube-dns.kube-system.svc.cluster.local}
"""


def test_records_of_headless_and_external_services_over_udp_and_tcp(running: Lab) -> None:
    """What the conformance tests of Kubernetes ask, with the objects of a real cluster."""
    kubectl = ["kubectl", "--kubeconfig", running("kubeconfig").strip()]

    def apply(manifests: str) -> None:
        subprocess.run([*kubectl, "apply", "-f", "-"], input=manifests.encode(), check=True, timeout=60)

    def dig(name: str, rtype: str = "A") -> set[str]:
        answers = [
            running("exec", "client", "--", "dig", "+short", "+search", *option, name, rtype).split("\n")
            for option in ((), ("+tcp",))
        ]
        assert sorted(answers[0]) == sorted(answers[1])
        return {line for line in answers[0] if line}

    apply(DNS_OBJECTS)
    member = until(lambda: dig("heads")).pop()
    zone = "default.svc.cluster.local"
    assert member.startswith("10.244.")
    assert dig("member-0.heads") == {member}
    assert dig(f"_http._tcp.heads.{zone}", "SRV") == {f"0 100 8080 member-0.heads.{zone}."}
    assert dig(f"{'.'.join(reversed(member.split('.')))}.in-addr.arpa", "PTR") == {f"member-0.heads.{zone}."}
    assert dig("1.0.96.10.in-addr.arpa", "PTR") == {f"kubernetes.{zone}."}
    assert dig(f"_https._tcp.kubernetes.{zone}", "SRV") == {f"0 100 443 kubernetes.{zone}."}
    assert dig(f"out.{zone}", "CNAME") == {"kube-dns.kube-system.svc.cluster.local."}
    assert "10.96.0.10" in dig("out")
    assert running("exec", "default/member", "--", "hostname", "-f").strip() == f"member-0.heads.{zone}"
    patch = '{"spec":{"type":"ClusterIP","externalName":null,"clusterIP":"10.96.0.77","ports":[{"port":80}]}}'
    subprocess.run([*kubectl, "patch", "service", "out", "-p", patch], check=True, timeout=60)
    until(lambda: dig("out") == {"10.96.0.77"})
    subprocess.run([*kubectl, "delete", "pod", "member", "--now"], check=True, timeout=60)
    until(lambda: not dig("heads"))


def test_with_host_access_the_host_reaches_a_service_and_nothing_of_it_stays(lab: Lab) -> None:
    host = f"{lab.name}-host"  # a namespace that plays the machine's own
    netns.create(host)
    try:
        subprocess.run(["ip", "-n", host, "link", "set", "lo", "up"], check=True)
        lab.prefix = ("nsenter", f"--net=/run/netns/{host}", "--")
        lab("up", "--nodes", "2", "--host-access")
        for server in ("10.96.0.10", "fd00:96::a"):
            argv = [*lab.prefix, "dig", "+short", "+time=2", f"@{server}", "kubernetes.default.svc.cluster.local"]
            assert subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout == b"10.96.0.1\n"
        assert "all reach" in lab("check")
        assert f"link {lab.name}-h" in lab("down")
        for what in (
            ("-o", "link"),
            ("-4", "route", "show", "table", "main"),
            ("-6", "route", "show", "table", "main"),
        ):
            shown = subprocess.run([*lab.prefix, "ip", *what], capture_output=True, text=True, check=True).stdout
            assert [line for line in shown.splitlines() if ": lo:" not in line and " dev lo " not in line] == []
    finally:
        lab("down")
        netns.delete(host)
        lab.prefix = ()
