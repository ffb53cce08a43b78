from collections.abc import Iterator

import pytest
from tests.proxy.world import FAR, POD_A, POD_B, World, world
from tests.spaces import fresh


@pytest.fixture(scope="module")
def net() -> Iterator[World]:
    """A node and its surroundings, all pods of which serve."""
    with world() as made:
        for address in (POD_A, POD_B, FAR):
            made.serve(address)
        yield made


@pytest.fixture
def netns() -> Iterator[str]:
    """An empty network namespace."""
    with fresh("proxy") as name:
        yield name
