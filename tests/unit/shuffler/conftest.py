from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.shuffler_core import Shuffler


@pytest.fixture
async def shuffler(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A started shuffler."""
    started = Shuffler(tmp_path)
    await started.start()
    yield started
    started.store.close()
