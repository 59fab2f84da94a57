from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shuffledp.deploy.clients.local_cluster import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The three services as child processes, logging everything they can."""
    async with Cluster(tmp_path, log_level="DEBUG") as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """The same for all tests of a module, whose event loop is the module's."""
    async with Cluster(tmp_path_factory.mktemp("cluster"), log_level="DEBUG") as started:
        yield started
