import time

import pytest

from common.runtime.clock import SystemClock


def test_what_passes_is_told_apart_from_what_the_time_is_set_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever sets the time ends no pause."""
    clock = SystemClock()
    now, elapsed = clock.now(), clock.elapsed()
    monkeypatch.setattr(time, "time", lambda: now + 1e6)

    assert now + 1e6 == clock.now()
    assert 0 <= clock.elapsed() - elapsed < 1e5
