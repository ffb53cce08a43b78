"""The scenario pages in IPVS mode, by real packets.

A guest without KVM takes long for all of them, so it is given a few; CLUSTERIP_PAGES=all asks for every one.
"""

import os
from collections.abc import Iterator

import pytest
from tests.scenarios.holding import Place, hold
from tests.scenarios.page import load, paths
from tests.scenarios.world import world

pytestmark = pytest.mark.kernel
FEW = ("cluster-ip", "pod-to-pod", "sctp")
NAMES = [path.stem for path in paths()] if os.environ.get("CLUSTERIP_PAGES") == "all" else FEW


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with world() as made:
        yield Place("ipvs", made)


@pytest.mark.parametrize("name", NAMES)
async def test_real_packets_meet_what_the_page_says(place: Place, name: str) -> None:
    await hold(load(name), place)
