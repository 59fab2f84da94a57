import numpy as np
import pytest
from scipy import stats

from common.errors import PlanError
from deploy.load.arrivals import arrivals, in_calls


def test_steady_arrivals_keep_their_rate_and_know_nothing_of_each_other() -> None:
    """
    Gaps of a Poisson process are exponential. Seed 5; fails by chance with probability 1e-7 over
    seeds.
    """
    moments = arrivals(5000, 50.0, "steady", np.random.default_rng(5))

    assert moments[-1] < 100
    assert (np.diff(moments) >= 0).all()
    assert stats.kstest(np.diff(moments), "expon", args=(0, 1 / 50)).pvalue > 1e-7


def test_the_same_seed_gives_the_same_moments() -> None:
    """So that a run can be repeated."""
    first, second = (arrivals(9, 3.0, "steady", np.random.default_rng(1)) for _ in range(2))

    np.testing.assert_array_equal(first, second)


def test_bursts_come_at_once_and_keep_the_rate() -> None:
    """Three at a time, ten a second."""
    moments = arrivals(7, 10.0, "burst", np.random.default_rng(1), burst=3)

    np.testing.assert_allclose([0, 0, 0, 0.3, 0.3, 0.3, 0.6], moments)


def test_a_rate_of_nothing_is_refused() -> None:
    """Nobody would ever come."""
    with pytest.raises(PlanError, match="above 0"):
        arrivals(1, 0.0, "steady", np.random.default_rng(1))


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([1, 1, 1], [[0, 3]]),
        ([2, 2, 2], [[0, 2], [2, 3]]),
        ([1, 100, 1, 1, 1, 1], [[0, 1], [1, 2], [2, 6]]),
        ([100], [[0, 1]]),
        ([0, 0, 4, 0], [[0, 4]]),
        ([], []),
    ],
)
def test_users_are_laid_together_up_to_a_calls_size(
    sizes: list[int], calls: list[list[int]]
) -> None:
    """Four submissions here; one user who has more gets a call of their own."""
    assert calls == in_calls(np.array(sizes, dtype=np.int64), 4).tolist()
