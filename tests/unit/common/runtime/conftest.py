"""What tests of services share."""

from pathlib import Path

import pytest

from shuffledp.common.runtime.state_directory import StateDirectory


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """Return the state directory of a service, whose key lies beside it."""
    return StateDirectory.open(tmp_path / "state")
