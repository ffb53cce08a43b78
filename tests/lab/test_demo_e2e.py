"""The demo and the check as a person runs them, each on a cluster of its own."""

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

CLUSTERIP = str(Path(sys.executable).parent / "clusterip")


def clusterip(*args: str, timeout: float = 180) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run([CLUSTERIP, *args], capture_output=True, text=True, timeout=timeout, check=False, env=env)


@pytest.fixture
def name() -> "str":
    return f"d{uuid.uuid4().hex[:6]}"


def test_the_demo_observes_all_it_claims_and_leaves_nothing(name: str) -> None:
    done = clusterip("demo", "--name", name, "--fast")
    assert done.returncode == 0, done.stdout + done.stderr
    held, claimed = map(int, re.findall(r"(\d+) of (\d+) claims were observed", done.stdout)[0])
    assert held == claimed > 30
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert f"Cluster {name} is taken away." in done.stdout
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"{name}." not in left
    assert clusterip("status", "--name", name).returncode != 0


def test_on_a_running_cluster_it_removes_its_namespace_and_check_agrees(name: str) -> None:
    assert clusterip("up", "--name", name, "--nodes", "2").returncode == 0
    try:
        done = clusterip("demo", "--name", name, "--fast")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "taken away" not in done.stdout
        report = json.loads(clusterip("check", "--name", name, "-o", "json").stdout)
        assert report["allReach"] is True, report
        kinds = {client["kind"] for client in report["clients"]}
        assert kinds == {"node", "pod"}
        assert {port["service"] for port in report["ports"]} == {"default/kubernetes", "kube-system/kube-dns"}
        nothing = clusterip("check", "--name", name, "nope")
        assert nothing.returncode == 2
        assert "error: service nope: there is none" in nothing.stderr
    finally:
        clusterip("down", "--name", name)


def test_a_check_without_a_cluster_cannot_ask(name: str) -> None:
    done = clusterip("check", "--name", name)
    assert done.returncode == 2
    assert f"error: cluster {name}: there is none" in done.stderr


def test_a_cluster_in_another_mode_is_refused_with_what_to_do(name: str) -> None:
    assert clusterip("up", "--name", name, "--nodes", "1", "--proxy-mode", "nftables").returncode == 0
    try:
        done = clusterip("demo", "--name", name)
    finally:
        clusterip("down", "--name", name)
    assert done.returncode == 2
    assert f"cluster {name}: the demo follows iptables' chains, here the mode is nftables" in done.stderr
    assert "hint: clusterip demo --name" in done.stderr
