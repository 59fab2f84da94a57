"""Tests of fit: right laws pass as often as they say, wrong ones fail. All seeds are fixed."""

import numpy as np
import pytest
from scipy import stats

from deploy.audit import fit
from deploy.audit.significance import TEST_LEVEL

_REPEATS = 400


def _even(p_values: list[float]) -> bool:
    """Say whether p-values lie evenly in 0 .. 1, or higher; it errs with probability 1e-7."""
    return bool(stats.kstest(p_values, "uniform", alternative="greater").pvalue > 1e-7)


def test_a_chance_is_tested_by_its_very_law() -> None:
    """Both sides; and 2 % off shows."""
    rng = np.random.default_rng(1)

    assert _even([fit.of_chance(int(n), 1000, 0.3) for n in rng.binomial(1000, 0.3, _REPEATS)])
    assert fit.of_chance(306_000, 1_000_000, 0.3) < TEST_LEVEL
    assert fit.of_chance(294_000, 1_000_000, 0.3) < TEST_LEVEL
    assert fit.of_chance(1, 10, 0.0) == 0
    assert fit.of_chance(0, 10, 0.0) == 1
    assert fit.of_chance(9, 10, 1.0) == 0


def test_a_rare_number_is_tested_by_poissons_law() -> None:
    """Neighbours that stay neighbours: one expected."""
    rng = np.random.default_rng(2)

    assert _even([fit.of_number(int(n), 1.0) for n in rng.poisson(1.0, _REPEATS)])
    assert fit.of_number(20, 1.0) < TEST_LEVEL
    assert fit.of_number(0, 30.0) < TEST_LEVEL


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
    assert fit.of_cells(np.array([120, 0]), np.array([1.0, 1.0])) is None
    assert fit.of_cells(np.array([7]), np.array([1.0])) is None


def _of_cells(observed: np.ndarray, law: np.ndarray) -> float:
    level = fit.of_cells(observed, law)
    assert level is not None
    return level


def test_what_cannot_happen_must_not() -> None:
    """One draw in a cell of chance 0 is enough."""
    assert fit.of_cells(np.array([10**6, 10**6, 1]), np.array([0.5, 0.5, 0.0])) == 0
    assert _of_cells(np.array([10**6, 10**6 + 10, 0]), np.array([0.5, 0.5, 0.0])) > 0.5


def test_two_samples_of_one_law_pass() -> None:
    """Of different sizes; a law shifted by one place fails."""
    rng = np.random.default_rng(4)

    def sample(size: int, shift: int = 0) -> np.ndarray:
        return np.bincount(rng.binomial(6, 0.3, size) + shift, minlength=8)

    def compared(one: np.ndarray, other: np.ndarray) -> float:
        level = fit.of_two_samples(one, other)
        assert level is not None
        return level

    assert _even([compared(sample(5000), sample(9000)) for _ in range(_REPEATS)])
    assert compared(sample(5000), sample(5000, shift=1)) < TEST_LEVEL
    assert compared(np.array([0, 50]), np.array([40, 10])) < TEST_LEVEL
    assert fit.of_two_samples(np.array([0, 50, 0]), np.array([0, 70, 0])) is None


def test_tables_of_orders_pass_and_of_lazy_ones_fail() -> None:
    """Where each of ten lands, and how blocks fall into blocks."""
    rng = np.random.default_rng(5)

    def landed(orders: int, swaps: int) -> np.ndarray:
        table = np.zeros((10, 10), dtype=np.int64)
        for _ in range(orders):
            order = rng.permutation(10) if swaps == 0 else np.arange(10)
            for one, other in rng.integers(0, 10, (swaps, 2)):
                order[[one, other]] = order[[other, one]]
            table[order, np.arange(10)] += 1
        return table

    assert _even([fit.of_table(landed(300, 0)) for _ in range(100)])
    assert fit.of_table(landed(20_000, 20)) < TEST_LEVEL

    def blocks() -> np.ndarray:
        order, table = rng.permutation(5000), np.zeros((5, 5), dtype=np.int64)
        np.add.at(table, (order // 1000, np.arange(5000) // 1000), 1)
        return table

    assert _even([fit.of_blocks(blocks()) for _ in range(_REPEATS)])
    assert fit.of_blocks(np.eye(5, dtype=np.int64) * 1000) < TEST_LEVEL


def test_a_sum_of_many_draws_is_tested_by_the_normal_law() -> None:
    """On both sides."""
    assert fit.of_normal(0.0, 0.0, 1.0) == 1
    assert fit.of_normal(6.0, 0.0, 1.0) < TEST_LEVEL
    assert fit.of_normal(-6.0, 0.0, 1.0) < TEST_LEVEL


def test_a_sum_of_unlike_parts_is_never_too_sure() -> None:
    """Bennett's bound lies above the exact law of small sums, and sees what the normal law does."""
    for trials, chance in ((3000, 0.001), (200, 0.02), (64, 0.5)):
        deviation = float(np.sqrt(trials * chance * (1 - chance)))
        for number in range(trials // 2):
            level = fit.of_sum(number, trials * chance, deviation, 1.0)
            assert level >= min(1.0, fit.of_chance(number, trials, chance)) * (1 - 1e-9)
    assert fit.of_sum(5000 + 6.5 * 50, 5000, 50.0, 1.0) < TEST_LEVEL
    assert fit.of_sum(0.0, 0.0, 0.0, 1.0) == 1
    assert fit.of_sum(1.0, 0.0, 0.0, 1.0) == 0


def test_sums_that_vary_otherwise_than_they_should_fail() -> None:
    """Twice as much, and half as much, of 64 sums."""
    rng = np.random.default_rng(8)

    assert _even([fit.of_squares(list(rng.normal(size=64))) for _ in range(_REPEATS)])
    assert fit.of_squares(list(2 * rng.normal(size=64))) < TEST_LEVEL
    assert fit.of_squares(list(rng.normal(size=64) / 2)) < TEST_LEVEL
