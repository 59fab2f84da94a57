"""Bounds on probabilities, against the law that they invert."""

import math

import pytest
from scipy import stats

from deploy.audit.significance import (
    FAMILY_LEVEL,
    MOST_TESTS,
    TEST_LEVEL,
    ceiling,
    probability_lower,
    probability_upper,
)


@pytest.mark.parametrize(("successes", "trials"), [(1, 10), (7, 10), (500, 10_000), (10, 10)])
def test_a_lower_bound_is_where_so_many_successes_become_unlikely(
    successes: int, trials: int
) -> None:
    """Exactly at the level, by the binomial law itself."""
    bound = probability_lower(successes, trials, 0.01)

    assert stats.binom.sf(successes - 1, trials, bound) == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (7, 10), (500, 10_000)])
def test_an_upper_bound_is_where_so_few_become_unlikely(successes: int, trials: int) -> None:
    """The same on the other side."""
    bound = probability_upper(successes, trials, 0.01)

    assert stats.binom.cdf(successes, trials, bound) == pytest.approx(0.01, rel=1e-6)


def test_nothing_seen_and_everything_seen_bound_one_side_only() -> None:
    """0 of n are no evidence against 0, nor n of n against 1."""
    assert probability_lower(0, 100) == 0
    assert probability_upper(100, 100) == 1


def test_the_ceiling_is_about_ln_of_trials_over_ln_of_two_over_the_level() -> None:
    """What a perfect distinguisher certifies."""
    assert ceiling(10**6, 0.0) == pytest.approx(
        math.log(10**6 / math.log(2 / TEST_LEVEL)), rel=1e-3
    )
    assert ceiling(10**6, 0.01) < ceiling(10**6, 0.0)
    assert ceiling(3, 0.999) == 0


def test_a_whole_run_errs_with_the_family_level_at_most() -> None:
    """By the union bound."""
    assert pytest.approx(FAMILY_LEVEL) == MOST_TESTS * TEST_LEVEL
