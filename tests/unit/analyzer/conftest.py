from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.analyzer_core import AnalyzerCore


@pytest.fixture
async def analyzer(tmp_path: Path) -> AsyncIterator[AnalyzerCore]:
    """A started analyzer with a task."""
    started = AnalyzerCore(tmp_path)
    await started.start()
    await started.publish()
    yield started
    await started.releases.stop()
    started.store.close()
