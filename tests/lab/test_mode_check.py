"""A mode that this machine cannot do is refused before anything of the cluster is made."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from tests.guest.guest import has_ipvs

from clusterip.kernel import netns
from clusterip.lab.plan import Plan
from clusterip.lab.state import state_of
from clusterip.lab.up import check_mode
from clusterip.proxy.config import ProxyConfig

pytestmark = pytest.mark.kernel


@pytest.fixture
def name() -> str:
    return f"m{uuid.uuid4().hex[:6]}"


@pytest.mark.skipif(has_ipvs(), reason="this kernel has IPVS")
@pytest.mark.parametrize("by_file", [False, True])
def test_up_without_ipvs_in_the_kernel_says_so_and_makes_nothing(name: str, tmp_path: Path, by_file: bool) -> None:
    config = tmp_path / "proxy.yaml"
    config.write_text("mode: ipvs\n")
    asked = ("--proxy-config", str(config)) if by_file else ("--proxy-mode", "ipvs")
    command = (sys.executable, "-m", "clusterip", "up", "--name", name, *asked)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == "error: IPVS: this kernel has none, and no module ip_vs to load"
    assert "--proxy-mode nftables" in second
    assert not [space for space in netns.names() if space.startswith(name)]
    assert not state_of(name).directory.exists()


@pytest.mark.parametrize("mode", ["iptables", "nftables", "ebpf"])
async def test_no_other_mode_asks_for_ipvs(name: str, mode: str) -> None:
    await check_mode(Plan(name=name), ProxyConfig(mode=mode))
