"""Each page holds in the kernel: its packets are sent, through what the real proxy wrote, and meet what it says."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.scenarios.asking import bounds, samples
from tests.scenarios.holding import Place, hold
from tests.scenarios.page import load, paths
from tests.scenarios.proxies import in_cgroups
from tests.scenarios.world import world

from clusterip.dataplane.ebpf import attach

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module", params=["iptables", "nftables", "ebpf"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        made = stack.enter_context(world())
        group, directory = Path(), tmp_path_factory.mktemp("pages") / "bpf"
        if request.param == "ebpf":
            group, made.opener = stack.enter_context(in_cgroups(made.mark))
            stack.callback(attach.remove, directory)
        yield Place(request.param, made, group, directory)


@pytest.mark.parametrize("name", [path.stem for path in paths()])
async def test_real_packets_meet_what_the_page_says(place: Place, name: str) -> None:
    await hold(load(name), place)


def test_shares_are_asked_often_enough_and_not_too_strictly() -> None:
    assert [samples(n) for n in (1, 2, 3)] == [1, 35, 60]
    assert bounds(60, 1 / 3) == (1, 44)
