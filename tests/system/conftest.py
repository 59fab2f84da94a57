from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.local_parties import Child


class _SmallCluster(Cluster):
    """The three services as child processes, with one worker each, logging everything they can."""

    async def _start(self, party: str, name: str = "", **settings: Any) -> Child:
        if party != "user_agent":
            settings["opening_processes"] = 1
        return await super()._start(party, name, log_level="DEBUG", **settings)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The three services."""
    async with _SmallCluster(tmp_path) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with _SmallCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def running(_shared: Cluster) -> Cluster:
    """The same for many tests, in the session's event loop; started again if one has ended them."""
    if _shared.analyzer.process.returncode is not None:
        await _shared.__aenter__()
    return _shared
