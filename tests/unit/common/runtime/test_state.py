from pathlib import Path

import pytest

from common.errors import SettingsError
from common.runtime.state import StateDirectory


def test_a_secret_is_made_once_with_mode_0600(tmp_path: Path) -> None:
    """The second call reads what the first made."""
    state = StateDirectory.open(tmp_path / "state")
    first = state.secret("key", lambda: b"first")

    assert b"first" == first == state.secret("key", lambda: b"second")
    assert (tmp_path / "state" / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_secret_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    """The message says what to do."""
    state = StateDirectory.open(tmp_path)
    state.secret("key", lambda: b"x")
    (tmp_path / "key").chmod(0o644)

    with pytest.raises(SettingsError, match="chmod 600"):
        state.secret("key", lambda: b"x")


def test_a_destroyed_secret_is_gone(tmp_path: Path) -> None:
    """And destroying it again does nothing."""
    state = StateDirectory.open(tmp_path)
    state.secret("key", lambda: b"x")
    state.destroy("key")
    state.destroy("key")

    assert list(tmp_path.iterdir()) == []
