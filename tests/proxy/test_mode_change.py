"""A running proxy changes its dataplane: nobody loses a request or a connection. The directions without IPVS; those
with it are in tests/guest."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.proxy.changing import change_under_load, changing, loading
from tests.proxy.world import World, world

pytestmark = pytest.mark.kernel

ROUNDS = (
    ("iptables", "nftables", "ebpf", "iptables"),
    ("iptables", "ebpf", "nftables", "iptables"),
)  # six directions
REQUESTS = 10_000


@pytest.fixture
def net() -> Iterator[World]:
    with world() as made:
        yield made


def shown(net: World, folder: Path) -> set[str]:
    """Whose rules are there."""
    links = folder / "bpf" / "links"
    found = {"iptables"} if ":KUBE-NODEPORTS" in net.rules() else set()
    found |= {"nftables"} if "ip clusterip\n" in net.on_node("nft list tables") else set()
    return found | ({"ebpf"} if links.exists() and any(links.iterdir()) else set())


WRITTEN = {"iptables": {"iptables"}, "nftables": {"nftables"}, "ebpf": {"ebpf", "nftables"}}


@pytest.mark.parametrize("modes", ROUNDS, ids="-".join)
async def test_no_request_and_no_connection_is_lost(net: World, tmp_path: Path, modes: tuple[str, ...]) -> None:
    async with changing(net, tmp_path, modes[0]) as found, loading(net, found.group) as load:
        for number, (was, mode) in enumerate(pairwise(modes)):
            counted, said = await change_under_load(found, load, mode, requests=REQUESTS, by_signal=number % 2 == 0)
            assert (said["from"], said["to"], said["phase"], said["error"]) == (was, mode, "done", "")
            assert counted["requests"] >= REQUESTS
            assert (counted["failed"], counted["lost"]) == ([], []), f"{was} -> {mode}: {said}"
            assert counted["long"] == 100
            await found.gone()
            assert shown(net, tmp_path) == WRITTEN[mode]
            assert await found.get("/proxyMode") == (200, mode)
            assert (await found.status())["drift"] == []
            print(f"{was} -> {mode}: {counted['requests']} requests, {said['seconds']}")  # noqa: T201
