from collections.abc import AsyncIterator, Iterator

import pytest
from tests.node.onenode import OneNode, Tenant, one_node, tenant


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    yield from one_node(tmp_path_factory.mktemp("node"))


@pytest.fixture
async def here(node: OneNode) -> AsyncIterator[Tenant]:
    async with tenant(node) as found:
        yield found
