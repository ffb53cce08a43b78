"""The scenario pages in IPVS mode, by real packets."""

from collections.abc import Iterator

import pytest
from tests.scenarios.holding import Place, hold
from tests.scenarios.page import load, paths
from tests.scenarios.world import world

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with world() as made:
        yield Place("ipvs", made)


@pytest.mark.parametrize("name", [path.stem for path in paths()])
async def test_real_packets_meet_what_the_page_says(place: Place, name: str) -> None:
    await hold(load(name), place)
