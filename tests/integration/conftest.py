from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.services import Services


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    """The three real servers, started and stopped."""
    started = Services(tmp_path)
    await started.start()
    yield started
    await started.stop()
