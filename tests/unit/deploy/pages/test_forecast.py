import math

import numpy as np
import pytest

from shuffledp.deploy.pages.live_feed import Sample, forecast, quiet_seconds

_EVENLY: list[Sample] = [(float(second), 10 * second) for second in range(0, 601, 2)]
"""Ten users per second for ten minutes."""


def test_a_burst_widens_the_range() -> None:
    """It spans the rates of the last minute and of the last ten minutes."""
    burst = [(seconds, users + 50 * max(0, int(seconds) - 540)) for seconds, users in _EVENLY]

    expected = forecast(burst, burst[-1][1] + 6000)

    assert expected is not None
    assert expected[0] < 6000 / 60 < 6000 / 15 < expected[1]


def test_a_range_has_no_end_after_a_minute_without_users() -> None:
    """Earlier arrivals bound the soonest only."""
    quiet = [*_EVENLY, *((600.0 + seconds, 6000) for seconds in range(2, 100, 2))]

    expected = forecast(quiet, 7000)

    assert expected is not None
    assert math.inf == expected[1]
    assert 98 == quiet_seconds(quiet)


@pytest.mark.parametrize("history", [[(0.0, 5)], [(0.0, 5), (10.0, 50)], [(0.0, 5), (300.0, 5)]])
def test_too_short_a_history_has_no_forecast(history: list[Sample]) -> None:
    """Minutes without users have none either."""
    assert forecast(history, 100) is None


def test_nine_of_ten_ranges_hold_the_true_time() -> None:
    """Users come at random for 50 s, and the time that 200 more take is in nine of ten ranges."""
    # Seed 1; .04 is six standard errors: a false alarm has probability 2e-9 over seeds.
    rng = np.random.default_rng(1)
    held = 0
    for rate in rng.uniform(0.2, 0.6, size=2000):
        came = int(rng.poisson(50 * rate))
        takes = rng.gamma(200) / rate
        expected = forecast([(0.0, 0), (50.0, came)], came + 200)
        held += expected is not None and expected[0] <= takes <= expected[1]

    assert 0.86 < held / 2000 < 0.94
