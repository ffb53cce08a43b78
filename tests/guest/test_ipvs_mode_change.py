"""A running proxy changes to IPVS and away from it: nobody loses a request or a connection. The other six directions
are in tests/proxy.

It runs where CLUSTERIP_REQUESTS says how many a direction: in QEMU without KVM that takes hours. `make ipvs` does.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.proxy.changing import change_under_load, changing, loading
from tests.proxy.world import World, world

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        "CLUSTERIP_REQUESTS" not in os.environ, reason="takes long; CLUSTERIP_REQUESTS=10000 asks for it"
    ),
]

ROUND = ("iptables", "ipvs", "ebpf", "ipvs", "nftables", "ipvs", "iptables")
REQUESTS = int(os.environ.get("CLUSTERIP_REQUESTS", "0"))
CONNECTIONS = 100  # a direction


@pytest.fixture
def net() -> Iterator[World]:
    with world() as made:
        yield made


async def test_no_request_and_no_connection_is_lost_to_ipvs_and_from_it(net: World, tmp_path: Path) -> None:
    async with changing(net, tmp_path, ROUND[0]) as found, loading(net, found.group) as load:
        for number, (was, mode) in enumerate(pairwise(ROUND)):
            counted, said = await change_under_load(
                found, load, mode, requests=REQUESTS, connections=CONNECTIONS, by_signal=number % 2 == 0
            )
            print(f"{was} -> {mode}: {counted['requests']} requests, {said}")  # noqa: T201
            step = "nftables" if {was, mode} == {"ipvs", "ebpf"} else was
            assert (said["from"], said["to"], said["phase"], said["error"]) == (step, mode, "done", "")
            assert (counted["failed"], counted["lost"]) == ([], []), f"{was} -> {mode}: {said}"
            assert counted["long"] == CONNECTIONS
            assert await found.get("/proxyMode") == (200, mode)
            assert (await found.status())["drift"] == []
            # Connections of IPVS mode are counted for two minutes after their end, and until then a client that comes
            # back with the same port is not safe: see docs/dataplanes/ipvs.md.
            await found.gone()
        assert "kube-ipvs0" not in net.on_node("ip -o link")
        assert net.on_node("ipset list -n") == ""
        rules = net.rules()
        assert "KUBE-IPVS" not in rules
        assert ":KUBE-NODEPORTS" in rules
