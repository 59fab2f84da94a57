"""P-values and bounds: right distributions pass as often as stated, wrong ones fail."""

import math

import numpy as np
import pytest
from scipy import stats

from deploy.audit.statistics import (
    FAMILY_LEVEL,
    MAX_TESTS,
    TEST_LEVEL,
    ceiling,
    p_binomial,
    p_cells,
    p_normal,
    p_poisson,
    probability_lower,
    probability_upper,
)

_REPEATS = 400


def _even(p_values: list[float]) -> bool:
    """Say whether p-values lie evenly in 0 .. 1, or higher; it errs with probability 1e-7."""
    return bool(stats.kstest(p_values, "uniform", alternative="greater").pvalue > 1e-7)


def test_a_chance_is_tested_by_its_very_law() -> None:
    """Both sides; and 2 % off shows."""
    rng = np.random.default_rng(1)

    assert _even([p_binomial(int(n), 1000, 0.3) for n in rng.binomial(1000, 0.3, _REPEATS)])
    assert p_binomial(306_000, 1_000_000, 0.3) < TEST_LEVEL
    assert p_binomial(294_000, 1_000_000, 0.3) < TEST_LEVEL
    assert p_binomial(1, 10, 0.0) == 0
    assert p_binomial(0, 10, 0.0) == 1
    assert p_binomial(9, 10, 1.0) == 0


def test_a_rare_number_is_tested_by_poissons_law() -> None:
    """Neighbours that stay neighbours: one expected."""
    rng = np.random.default_rng(2)

    assert _even([p_poisson(int(n), 1.0) for n in rng.poisson(1.0, _REPEATS)])
    assert p_poisson(20, 1.0) < TEST_LEVEL
    assert p_poisson(0, 30.0) < TEST_LEVEL


@pytest.mark.parametrize("cells", [2, 3, 50, 3000])
def test_cells_of_a_law_pass_and_of_another_fail(cells: int) -> None:
    """Many cells, of which some are seldom: put together."""
    rng = np.random.default_rng(cells)
    law = rng.dirichlet(np.ones(cells))
    other = law * rng.uniform(0.9, 1.1, cells)

    assert _even([_of_cells(rng.multinomial(20_000, law), law) for _ in range(_REPEATS)])
    assert _of_cells(rng.multinomial(10**7, other / other.sum()), law) < TEST_LEVEL


def test_rare_cells_are_tested_with_their_neighbours() -> None:
    """Of 20,000 cells with five draws each: halves, and every second hundred; not every second."""
    rng = np.random.default_rng(7)
    even = np.ones(20_000)
    drawn = np.bincount(rng.integers(0, 20_000, 100_000), minlength=20_000)
    half = np.bincount(rng.integers(0, 10_000, 100_000), minlength=20_000)
    stripes = np.bincount(rng.integers(0, 10_000, 100_000) // 100 * 200, minlength=20_000)

    assert _of_cells(drawn, even) > TEST_LEVEL
    assert _of_cells(half, even) < TEST_LEVEL
    assert _of_cells(stripes, even) < TEST_LEVEL


def test_too_few_draws_are_no_test() -> None:
    """Rather than one that passes whatever is drawn."""
    assert p_cells(np.array([120, 0]), np.array([1.0, 1.0])) is None
    assert p_cells(np.array([7]), np.array([1.0])) is None


def _of_cells(observed: np.ndarray, law: np.ndarray) -> float:
    level = p_cells(observed, law)
    assert level is not None
    return level


def test_what_cannot_happen_must_not() -> None:
    """One draw in a cell of chance 0 is enough."""
    assert p_cells(np.array([10**6, 10**6, 1]), np.array([0.5, 0.5, 0.0])) == 0
    assert _of_cells(np.array([10**6, 10**6 + 10, 0]), np.array([0.5, 0.5, 0.0])) > 0.5


def test_a_sum_of_many_draws_is_tested_by_the_normal_law() -> None:
    """On both sides."""
    assert p_normal(0.0, 0.0, 1.0) == 1
    assert p_normal(6.0, 0.0, 1.0) < TEST_LEVEL
    assert p_normal(-6.0, 0.0, 1.0) < TEST_LEVEL


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
    assert pytest.approx(FAMILY_LEVEL) == MAX_TESTS * TEST_LEVEL
