import numpy as np
import pytest

from common.messages.estimate import Histogram
from deploy.simulate.errors import Errors, Summary


def test_errors_by_hand() -> None:
    """Three items, one of which nobody has: it counts for the mean, not for the top."""
    histogram = Histogram(
        frequencies=np.array([0.5, 0.1, 0.5]),
        standard_errors=np.zeros(3),
        refined=np.array([0.6, 0.0, 0.4]),
        mse_theory=0.0,
    )
    found = Errors.of(histogram, np.array([0.75, 0.0, 0.25]))

    assert (0.0625 + 0.01 + 0.0625) / 3 == pytest.approx(found.mse)
    assert (0.0225 + 0.0 + 0.0225) / 3 == pytest.approx(found.mse_refined)
    assert 0.0625 == pytest.approx(found.mse_top50)
    assert 0.0225 == pytest.approx(found.mse_top50_refined)
    assert 0.25 == pytest.approx(found.max_error)
    assert (0.25 / 0.75 + 1.0) / 2 == pytest.approx(found.relative_error)
    assert 0 == found.regret  # the first of two equal shares is the true first


def test_the_top_are_the_fifty_most_frequent() -> None:
    """Of sixty items, errors of the ten rarest do not count."""
    truth = np.arange(1, 61) / np.arange(1, 61).sum()
    wrong = truth.copy()
    wrong[:10] += 1.0
    histogram = Histogram(
        frequencies=wrong, standard_errors=np.zeros(60), refined=truth, mse_theory=0.0
    )
    found = Errors.of(histogram, truth)

    assert 0 == found.mse_top50
    assert 10 / 60 == pytest.approx(found.mse)


def test_regret_is_what_the_value_that_looks_best_lacks() -> None:
    """A third of all take it, where a half take the best."""
    histogram = Histogram(
        frequencies=np.array([0.4, 0.6, 0.0]),
        standard_errors=np.zeros(3),
        refined=np.array([1.0, 0.0, 0.0]),
        mse_theory=0.0,
    )
    found = Errors.of(histogram, np.array([1 / 2, 1 / 3, 1 / 6]))

    assert 1 / 6 == pytest.approx(found.regret)


@pytest.mark.parametrize(
    ("values", "mean", "error"), [([3.0], 3.0, 0.0), ([1.0, 3.0], 2.0, 1.0), ([2.0] * 4, 2.0, 0.0)]
)
def test_a_summary_by_hand(values: list[float], mean: float, error: float) -> None:
    """Mean, and the sample's deviation over the root of their number; 0 for one."""
    assert Summary(mean=mean, standard_error=error) == Summary.of(values)


@pytest.mark.parametrize(
    ("values", "written", "stated"),
    [([3.0], "3", None), ([1.0, 3.0], "2 ±50%", 1.0), ([0.0, 0.0], "0", 0.0)],
)
def test_an_error_is_written_where_there_is_one(
    values: list[float], written: str, stated: float | None
) -> None:
    """A single repeat has none; repeats that agree have one of 0."""
    found = Summary.of(values)

    assert written == found.written(".3g")
    assert stated == found.stated_error(len(values))
