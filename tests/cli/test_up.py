"""What `clusterip up` says to type next is true of the cluster there is."""

from pathlib import Path

import pytest

from clusterip.cli.up import next_steps
from clusterip.lab.files import proxy_config
from clusterip.lab.plan import Plan
from clusterip.lab.state import State, write


@pytest.mark.parametrize(
    ("mode", "listing"),
    [
        ("iptables", "iptables -t nat -L KUBE-SERVICES -n"),
        ("nftables", "nft list table ip clusterip"),
        ("ebpf", "nft list table ip clusterip"),
        ("ipvs", "ipvsadm -L -n"),
    ],
)
def test_the_rules_are_listed_of_the_mode_that_the_node_is_in(tmp_path: Path, mode: str, listing: str) -> None:
    """Whatever `up` was told: a file or `clusterip mode` may have said another."""
    plan, state = Plan(proxy_mode="iptables", ip_family="ipv4"), State("clusterip", tmp_path)
    write(state.proxy_configuration_of("node-1"), proxy_config(plan, state, "node-1", {"mode": mode}))
    assert f"clusterip exec node-1 -- {listing}" in next_steps(plan, state)
