"""A machine without a rule, and no word of what to look at: that is said, with what can be named instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernel

ASKED = {
    "trace": ("trace", "client", "web:80"),
    "doctor": ("doctor",),
    "verify": ("verify",),
}


def run(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a network namespace of its own, which has no rule."""
    program = (sys.executable, "-c", "from clusterip.cli.main import main; main()")
    environment = {**os.environ, "CLUSTERIP_STATE": str(state)}
    argv = ("unshare", "--net", *program, *words)
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.parametrize("command", ASKED)
def test_what_can_be_given_is_said(command: str, tmp_path: Path) -> None:
    done = run(tmp_path, *ASKED[command])
    assert done.stderr.startswith("error: nothing was given to look at, and this machine's own kernel holds no rules\n")
    file = "FILE..." if command == "doctor" else "--rules FILE"
    assert f"hint: {file} for what iptables-save" in done.stderr
    assert done.stderr.endswith("clusterip up, and then --node node-1\n")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_cluster_here_is_named(tmp_path: Path) -> None:
    (tmp_path / "lab-7").mkdir()
    assert "hint: --node node-1 --name lab-7 for a node of the cluster here; " in run(tmp_path, "doctor").stderr
