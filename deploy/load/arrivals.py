"""
When simulated users arrive, in an open loop, and how many travel in a call. Pure.

In an open loop nobody waits for another's answer: arrivals follow a schedule that is fixed
beforehand, and latency is measured from the scheduled moment. A generator that waited for a slow
service before it sent the next, and measured from there, would leave out the very users who waited
longest (coordinated omission).
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import PlanError
from common.wire.fields import MAX_MESSAGE_BYTES
from common.wire.submissions import MAX_BULK_ENVELOPES

Pattern = Literal["steady", "burst"]


def arrivals(
    count: int, rate: float, pattern: Pattern, rng: np.random.Generator, *, burst: int = 1
) -> NDArray[np.float64]:
    """
    Give the moments of so many arrivals.

    `steady` is a Poisson process, as of many people who know nothing of each other, given its
    number of arrivals: uniform moments over count / rate seconds, so that the offered rate is
    exact. `burst` lets `burst` arrive at once, evenly spaced: what happens when an app wakes
    everybody on the hour.

    Args:
        count: How many.
        rate: Arrivals a second, on average, above 0.
        pattern: Which.
        rng: Where the moments of `steady` come from.
        burst: Arrivals at once.

    Returns:
        Seconds from the start, ascending, shape (count,), each below count / rate.
    """
    if not rate > 0:
        raise PlanError(f"the rate is {rate:g}; it must be above 0")
    if pattern == "burst":
        moments = np.arange(count) // burst * (burst / rate)
    else:
        moments = np.sort(rng.random(count)) * (count / rate)
    return moments.astype(np.float64)


def submissions_of_a_call(envelope_bytes: int) -> int:
    """Say how many submissions travel in one bulk call: half of what the shuffler reads."""
    return max(1, min(MAX_BULK_ENVELOPES // 2, MAX_MESSAGE_BYTES // (2 * envelope_bytes)))


def in_calls(sizes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """
    Lay users who come one after the other together in bulk calls.

    Args:
        sizes: Submissions of each user, shape (n,).
        most: Submissions of a call, at most, unless one user has more.

    Returns:
        Where each call begins and ends among users, shape (calls, 2).
    """
    ends, begun, held = [], 0, 0
    for user, size in enumerate(sizes.tolist()):
        if held + size > most and user > begun:
            ends.append(user)
            begun, held = user, 0
        held += size
    if len(sizes) > begun:
        ends.append(len(sizes))
    return np.column_stack([[0, *ends][:-1], ends]).astype(np.int64).reshape(-1, 2)
