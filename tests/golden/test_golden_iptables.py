"""`clusterip rules` gives, from empty tables, what kube-proxy gives: read as values, and loaded into real kernels."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.golden.compare import differences
from tests.spaces import fresh

from clusterip.cli.rules import command
from clusterip.kernel import nfacct
from clusterip.rulesets.iptables import parse, ruleset_text

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/manifests.yaml"))
NODE = ("--node-name", "node-a", "--node-ip", "10.200.0.1", "--node-labels", "topology.kubernetes.io/zone=zone-1")
RANGES = ("--cluster-cidr", "10.244.0.0/16", "--service-cidr", "10.96.0.0/16")
COUNTERS = ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")


def rules(folder: Path, *options: str) -> str:
    files = ("-f", str(folder / "manifests.yaml"), "-f", str(HERE / "kubernetes.yaml"))
    result = CliRunner().invoke(command, [*files, *NODE, *RANGES, *options], catch_exceptions=False)
    return result.stdout


@pytest.fixture
def netns() -> Iterator[str]:
    with fresh("golden") as name:
        yield name


def test_there_are_twelve_folders() -> None:
    assert len(FOLDERS) == 12


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_the_rules_are_kube_proxys_own(folder: Path) -> None:
    want = ruleset_text(parse((folder / "iptables-save.txt").read_text()))
    got = ruleset_text(parse(rules(folder, "--nfacct")))
    assert [d for d in differences(want, got) if "mangle/" not in d] == []


@pytest.mark.kernel
@pytest.mark.parametrize("counted", [True, False], ids=["nfacct", "no-nfacct"])
@pytest.mark.parametrize("variant", ["nft", "legacy"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_loaded_and_saved_they_are_what_kube_proxy_gives(folder: Path, variant: str, counted: bool, netns: str) -> None:
    if counted and not all(nfacct.ensure(name, netns) for name in COUNTERS):
        pytest.skip("this kernel has no nfacct; the other half of this test covers it")
    inside = ("ip", "netns", "exec", netns)
    text = rules(folder, *(["--nfacct"] if counted else []))
    subprocess.run([*inside, f"iptables-{variant}-restore"], input=text, text=True, check=True, timeout=60)
    saved = subprocess.run(
        [*inside, f"iptables-{variant}-save"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert differences((folder / "iptables-save.txt").read_text(), saved, nfacct=counted) == []


def test_a_difference_is_seen() -> None:
    want = "*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -j X\n-A KUBE-SVC-A -j Y\nCOMMIT\n"
    assert differences(want, want.replace("-j X", "-j Z"))
    assert differences(want, "*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -j Y\n-A KUBE-SVC-A -j X\nCOMMIT\n")
    assert differences(want, "*nat\nCOMMIT\n")
    assert differences(want, want.replace("[0:0]", "[3:4]")) == []
