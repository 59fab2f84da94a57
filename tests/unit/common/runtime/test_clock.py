"""Pauses between retries."""

from common.runtime.clock import retry_pause


def test_retry_pauses_double_from_a_second_to_a_minute() -> None:
    """They stay at a minute."""
    pauses = [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses == [retry_pause(previous) for previous in [0, *pauses[:-1]]]
