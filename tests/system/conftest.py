from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.clients.local_cluster import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The three services as child processes, logging everything they can."""
    async with Cluster(tmp_path, log_level="DEBUG") as started:
        yield started
