"""
RAPPOR of strings whose shares fall exponentially, among candidates that nobody holds, after the
simulations of [EPK14] and the demonstration of [GRappor].
"""

from fractions import Fraction
from typing import Final

import numpy as np

from common.mechanisms.base import Counts
from common.task.ranges import within
from deploy.simulate.experiments.rappor_comparison import (
    Letters,
    Population,
    RapporComparison,
    compare,
)

PRESENT: Final = 100
ABSENT: Final = 100
USERS: Final = 1_000_000
SCALE: Final = 20.0
"""Ranks over which a share falls to 1/e. The paper does not state it, and what is found depends on
it strongly."""

_HALF: Final = Fraction(1, 2)
_THREE_QUARTERS: Final = Fraction(3, 4)
SETTINGS: Final = (
    # The paper's simulations have the noise, and its Chrome collection the filter's length.
    Letters(k=128, h=2, m=16, f=_HALF, p=_HALF, q=_THREE_QUARTERS),
    # The public demonstration's.
    Letters(k=32, h=1, m=64, f=_HALF, p=Fraction(1, 4), q=_THREE_QUARTERS),
)


def exponential(present: int, n_users: int, scale: float = SCALE) -> Counts:
    """
    Share people out: to rank r in proportion to e^(-r/scale), by the largest remainders.

    Returns:
        Shape (present,), of sum n_users.
    """
    weights = np.exp(-np.arange(present) / scale)
    exact = weights / weights.sum() * n_users
    people: Counts = exact.astype(np.int64)
    left = n_users - int(people.sum())
    people[np.argsort(people - exact, kind="stable")[:left]] += 1
    return people


def population(
    present: int = PRESENT, absent: int = ABSENT, n_users: int = USERS, scale: float = SCALE
) -> Population:
    """
    Give strings v1, v2, … that people hold, by falling shares, and w1, w2, … that nobody does.

    Raises:
        TaskError: A number is out of its range.
    """
    within("present", present, 1, 10**5)
    within("absent", absent, 0, 10**5)
    within("users", n_users, 1, 10**9)
    held = tuple(f"v{rank}" for rank in range(1, present + 1))
    absentees = tuple(f"w{rank}" for rank in range(1, absent + 1))
    return Population(
        title=f"{present} strings of exponential shares, and {absent} that nobody holds",
        candidates=held + absentees,
        people=np.concatenate(
            [exponential(present, n_users, scale), np.zeros(absent, dtype=np.int64)]
        ),
    )


def run(
    seed: int,
    *,
    present: int = PRESENT,
    absent: int = ABSENT,
    n_users: int = USERS,
    scale: float = SCALE,
    settings: tuple[Letters, ...] = SETTINGS,
) -> RapporComparison:
    """
    Collect a report from everybody under each setting, and decode.

    Args:
        seed: Of all randomness.
        present: Strings that people hold.
        absent: Candidates that nobody holds.
        n_users: People.
        scale: Ranks over which a share falls to 1/e.
        settings: RAPPOR's.

    Raises:
        TaskError: A number is out of its range.

    Cost: a second.
    """
    return compare(population(present, absent, n_users, scale), settings, seed)
