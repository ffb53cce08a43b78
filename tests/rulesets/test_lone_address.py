"""One address is not a range that happens to end in the same digits."""

import pytest

from clusterip.rulesets.iptables.values import lone_address

NETWORKS = {
    "10.0.0.1/32": "10.0.0.1",
    "10.0.0.1": "10.0.0.1",
    "10.0.0.0/24": "",
    "fd00::1/128": "fd00::1",
    "fd00:1::/32": "",
    "10.0.0.1/32,10.0.0.2/32": "",
}


@pytest.mark.parametrize(("network", "address"), NETWORKS.items())
def test_a_network_of_one_address_is_told_from_others(network: str, address: str) -> None:
    assert lone_address(network) == address
