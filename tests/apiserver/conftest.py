from collections.abc import AsyncIterator

import pytest
from tests.apiserver.serving import Api, running


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with running() as started:
        yield started
