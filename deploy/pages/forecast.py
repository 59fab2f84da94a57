"""Forecast when a batch will reach a number of users, from recent arrivals. Pure."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from scipy.special import fdtri

Sample = tuple[float, int]
"""Seconds since some moment, and how many users there were."""

WINDOWS: Final = (60.0, 600.0)
"""Seconds to look back: arrivals are seldom even, so the range spans both."""
SHORTEST: Final = 15.0
"""Least seconds of watching for a forecast."""
_TAIL: Final = 0.05
"""Probability on either side of a range, at the rate of its window."""


class Forecast(NamedTuple):
    """Seconds from now, at the rate of the last minutes."""

    soonest: float
    latest: float


def forecast(history: Sequence[Sample], wanted: int) -> Forecast | None:
    """
    Forecast when there will be `wanted` users; None if no users came, or too little was seen.

    If k users came in T seconds and go on coming at the same rate, independently, then the time
    until r more have come is T · r / (k + 1/2) times a number with the F distribution of 2r and
    2k + 1 degrees of freedom, by Jeffreys' prior for the rate. The range is the widest of 90 %
    ranges over the WINDOWS; it has no end if no users came in one of them.

    Args:
        history: Samples in their order, the last one of now.
        wanted: Users; more than there are, or the answer is now.
    """
    if not history:
        return None
    now, n_users = history[-1]
    missing = wanted - n_users
    if missing <= 0:
        return Forecast(0.0, 0.0)
    soonest, latest = math.inf, 0.0
    for window in WINDOWS:
        since, before = next(sample for sample in history if sample[0] >= now - window)
        seconds, came = now - since, n_users - before
        if seconds < SHORTEST:
            continue
        high = math.inf
        if came > 0:
            scale = seconds * missing / (came + 0.5)
            low, high = (
                scale * float(fdtri(2 * missing, 2 * came + 1, chance))
                for chance in (_TAIL, 1 - _TAIL)
            )
            soonest = min(soonest, low)
        latest = max(latest, high if math.isfinite(high) else math.inf)
    return Forecast(soonest, latest) if soonest < math.inf else None


def quiet_seconds(history: Sequence[Sample]) -> float:
    """Return the seconds since the last arrival, as far as was seen."""
    if not history:
        return 0.0
    now, n_users = history[-1]
    since = now
    for seconds, there in reversed(history):
        if there < n_users:
            break
        since = seconds
    return now - since
