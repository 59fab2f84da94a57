from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.issuers import IssuerCore


@pytest.fixture
def core(tmp_path: Path) -> Iterator[IssuerCore]:
    """A started issuer without a network."""
    started = IssuerCore(tmp_path)
    started.start()
    yield started
    started.stop()
