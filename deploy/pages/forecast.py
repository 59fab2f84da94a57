"""Forecast, from recent arrivals, when a batch will reach a number of users."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from scipy.special import fdtri

Sample = tuple[float, int]
"""Time in seconds, and the number of users at that time."""

WINDOWS: Final = (60.0, 600.0)
"""Lookback windows in seconds; the forecast covers the arrival rates of both."""
MIN_HISTORY: Final = 15.0
"""Minimum seconds of history for a forecast."""
_TAIL: Final = 0.05
"""Probability below and above the range of each window."""


class Forecast(NamedTuple):
    """Range of the remaining time, in seconds from now."""

    soonest: float
    latest: float


def forecast(history: Sequence[Sample], goal: int) -> Forecast | None:
    """
    Forecast when `goal` users will be reached; None without arrivals or with too little history.

    If arrivals are a Poisson process and k users arrived in T seconds, the time until r more arrive
    is T · r / (k + 1/2) times a random number with the F distribution of 2r and 2k + 1 degrees of
    freedom, under Jeffreys' prior for the rate. The forecast spans the 90 % ranges of all WINDOWS;
    `latest` is infinite if no user arrived in one of them. The last sample is the present.
    """
    if not history:
        return None
    now, n_users = history[-1]
    missing = goal - n_users
    if missing <= 0:
        return Forecast(0.0, 0.0)
    soonest, latest = math.inf, 0.0
    for window in WINDOWS:
        since, before = next(sample for sample in history if sample[0] >= now - window)
        seconds, arrived = now - since, n_users - before
        if seconds < MIN_HISTORY:
            continue
        if arrived == 0:
            latest = math.inf
            continue
        scale = seconds * missing / (arrived + 0.5)
        low, high = scale * fdtri(2 * missing, 2 * arrived + 1, [_TAIL, 1 - _TAIL])
        soonest = min(soonest, float(low))
        latest = max(latest, float(high) if math.isfinite(high) else math.inf)
    return Forecast(soonest, latest) if soonest < math.inf else None


def quiet_seconds(history: Sequence[Sample]) -> float:
    """Return the seconds since the last arrival, or the start of the history; 0 without history."""
    if not history:
        return 0.0
    now, n_users = history[-1]
    return now - min(seconds for seconds, there in history if there == n_users)
