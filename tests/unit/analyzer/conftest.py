from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.analyzer_core import AnalyzerCore


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[AnalyzerCore]:
    """A started analyzer without a task."""
    started = AnalyzerCore(tmp_path)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def analyzer(core: AnalyzerCore) -> AnalyzerCore:
    """A started analyzer with a task."""
    await core.publish()
    return core
