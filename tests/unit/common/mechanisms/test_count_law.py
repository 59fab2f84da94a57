"""Intervals of shares against exact tails of binomial counts."""

import math

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.mechanisms.count_law import Draws, interval_table
from shuffledp.common.messages.result import IntervalTable


def _ends(table: IntervalTable, estimate: float, confidence: float) -> tuple[float, float]:
    estimates = np.array([estimate])
    own = np.interp(np.clip(estimates, 0, 1), table.shares, table.errors**2) ** 0.5
    low, high = table.interval(estimates, own, confidence)
    return float(low[0]), float(high[0])


@pytest.mark.parametrize("confidence", [0.95, 0.9995])
@pytest.mark.parametrize(("own", "other"), [(0.7, 0.02), (0.9, 0.0), (0.5, 0.2), (0.9987, 0.0003)])
def test_an_interval_ends_where_the_tail_has_half_of_the_misses(
    own: float, other: float, confidence: float
) -> None:
    """
    For 50 users, whole numbers of holders within are those whose tails are not too small.

    Holders next to an end are not compared: the tails are interpolated between numbers of holders.
    """
    n_users, miss = 50, (1 - confidence) / 2
    table = interval_table(n_users, own, other, ())
    holders = np.arange(n_users + 1)
    counts = np.arange(n_users + 1)
    laws = np.array(
        [
            np.convolve(
                stats.binom.pmf(np.arange(held + 1), held, own),
                stats.binom.pmf(np.arange(n_users - held + 1), n_users - held, other),
            )
            for held in holders
        ]
    )
    at_most, at_least = np.cumsum(laws, axis=1), np.cumsum(laws[:, ::-1], axis=1)[:, ::-1]
    possible = (at_most > miss) & (at_least > miss)
    for count in counts[1:-1]:
        inside = holders[possible[:, count]]
        if not len(inside):
            continue
        estimate = (count / n_users - other) / (own - other)
        low, high = _ends(table, estimate, confidence)

        assert n_users * low <= inside[0] + 0.3
        assert n_users * high >= inside[-1] - 0.3
        assert inside[0] == 0 or n_users * low >= inside[0] - 1.6
        assert inside[-1] == n_users or n_users * high <= inside[-1] + 1.6


def test_dummies_tails_are_those_of_their_distribution() -> None:
    """
    Two-sided geometric noise passes its reach as rarely as stated, many times rarer than a normal.

    Below 1e-9 tails are extrapolated.
    """
    ratio, steps = math.exp(-0.25), np.arange(-200, 201)
    law = ratio ** np.abs(steps)
    noise = Draws(1, steps, law / law.sum())
    table = interval_table(100_000, 1.0, 0.0, (noise,))
    deviation = float(np.sqrt(noise.chances @ steps**2))
    for confidence in (0.95, 1 - 0.05 / 915):
        _, above = table.reaches(confidence)
        tail = noise.chances[steps > above[0] * deviation].sum()

        assert (
            tail
            <= (1 - confidence) / 2
            < 1.3 * noise.chances[steps >= math.floor(above[0] * deviation)].sum()
        )
    assert above[0] > 1.5 * -stats.norm.ppf(0.025 / 915)


@pytest.mark.parametrize("items", [2, 3])
def test_noise_on_each_item_loses_its_average(items: int) -> None:
    """
    What is left of a skewed number has the tails of the numbers' convolution, in parts of a count.

    Of two numbers that is half their difference, which is symmetric.
    """
    steps = np.arange(-12, 61)
    law = np.where(steps < 0, 0.5**-steps, 0.9**steps)
    law /= law.sum()
    table = interval_table(5000, 1.0, 0.0, (Draws(1, steps, law),), among=items)
    own = np.zeros((items - 1) * (len(steps) - 1) + 1)
    own[:: items - 1] = law
    for _ in range(items - 1):
        own = np.convolve(own, law[::-1])
    values = np.arange(len(own)) - own @ np.arange(len(own))
    deviation = math.sqrt(own @ values**2)
    below, above = (each[0] * deviation for each in table.reaches(0.95))

    assert deviation / items / 5000 == pytest.approx(table.errors[0])
    assert own[values > above].sum() <= 0.025 < own[values >= above - 1].sum()
    assert own[values < -below].sum() <= 0.025 < own[values <= 1 - below].sum()
    assert (below == pytest.approx(above)) == (items == 2)  # a difference


def test_many_items_lose_no_average_that_takes_long() -> None:
    """It is nearly constant; the law of one number is scaled."""
    steps = np.arange(-200, 201)
    law = math.exp(-0.1) ** np.abs(steps)
    noise = (Draws(1, steps, law / law.sum()),)
    alone = interval_table(10**6, 1.0, 0.0, noise)
    many = interval_table(10**6, 1.0, 0.0, noise, among=10_000)

    assert alone.errors.tolist() == many.errors.tolist()
    assert alone.above.tolist() == many.above.tolist()


def test_many_reports_are_practically_normal() -> None:
    """A transform of their count would be long, and gain less than a hundredth of an error."""
    table = interval_table(10**8, 0.6, 0.2, (Draws.coins(10**8, 0.2),))
    below, above = table.reaches(0.95)

    assert np.full(len(table.shares), 1.959964) == pytest.approx(below, rel=1e-3)
    assert below == pytest.approx(above)
