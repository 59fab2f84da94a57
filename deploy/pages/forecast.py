"""Forecast when a batch will have its users, from the arrivals of the last minutes. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scipy.special import fdtri

Sample = tuple[float, int]
"""Seconds since some moment, and how many users there were."""

WINDOWS: Final = (60.0, 600.0)
"""Seconds to look back: arrivals are seldom even, so the range spans both."""
SHORTEST: Final = 15.0
"""Least seconds of watching for a forecast."""
_TAIL: Final = 0.05
"""Probability on either side of a range, at the rate of its window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
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
    if n_users >= wanted:
        return Forecast(soonest=0.0, latest=0.0)
    windows = [_window(history, now - window) for window in WINDOWS]
    seen = [(seconds, came) for seconds, came in windows if seconds >= SHORTEST]
    ranges = [_range(seconds, came, wanted - n_users) for seconds, came in seen if came > 0]
    if not ranges:
        return None
    dried_up = any(came == 0 for _, came in seen)
    return Forecast(
        soonest=min(low for low, _ in ranges),
        latest=math.inf if dried_up else max(high for _, high in ranges),
    )


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


def _window(history: Sequence[Sample], since: float) -> Sample:
    """Return the seconds since a moment, and the users who came in them."""
    first = next(sample for sample in history if sample[0] >= since)
    return history[-1][0] - first[0], history[-1][1] - first[1]


def _range(seconds: float, came: int, missing: int) -> tuple[float, float]:
    scale = seconds * missing / (came + 0.5)
    low, high = (
        scale * float(fdtri(2 * missing, 2 * came + 1, chance)) for chance in (_TAIL, 1 - _TAIL)
    )
    return low, high if math.isfinite(high) else math.inf
