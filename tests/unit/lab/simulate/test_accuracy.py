import numpy as np
import pytest

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.messages.result import Histogram
from shuffledp.lab.simulate.accuracy import Summary, histogram_errors, prefix_errors


def _histogram(frequencies: Vector, refined: Vector) -> Histogram:
    return Histogram(
        frequencies=frequencies,
        standard_errors=np.zeros(len(frequencies)),
        refined=refined,
        mse_theory=0.0,
    )


def test_errors_by_hand() -> None:
    """An item without users counts in the mean, not in the top."""
    histogram = _histogram(np.array([0.5, 0.1, 0.5]), np.array([0.6, 0.0, 0.4]))

    assert histogram_errors(histogram, np.array([0.75, 0.0, 0.25])) == pytest.approx(
        {
            "mse": (0.0625 + 0.01 + 0.0625) / 3,
            "mse_refined": 0.045 / 3,
            "mse_top50": 0.0625,
            "mse_top50_refined": 0.0225,
            "max_error": 0.25,
            "relative_error": (0.25 / 0.75 + 1.0) / 2,
            "regret": 0.0,  # the first of two equal shares is the true first
        }
    )


def test_errors_of_prefixes_by_hand() -> None:
    """Of shares below an edge."""
    unrefined, refined = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    found = prefix_errors(unrefined, refined, refined)

    assert found == pytest.approx({"mse": 0.0625 / 3, "mse_refined": 0.0})


def test_the_top_are_the_fifty_most_frequent() -> None:
    """The ten rarest of sixty items do not count."""
    truth = np.arange(1, 61) / np.arange(1, 61).sum()
    wrong = truth.copy()
    wrong[:10] += 1.0
    found = histogram_errors(_histogram(wrong, truth), truth)

    assert 0 == found["mse_top50"]
    assert 10 / 60 == pytest.approx(found["mse"])
    assert truth[59] - truth[9] == pytest.approx(found["regret"])


def test_a_summary_by_hand() -> None:
    """The half width is 2.776 standard errors for five repeats; fewer have none."""
    found = Summary.of([1.0, 2.0, 3.0, 4.0, 5.0])

    assert (3.0, 0.5**0.5) == (found.mean, pytest.approx(found.standard_error))
    assert 2.7764451 * 0.5**0.5 == pytest.approx(found.half_width)
    assert "3 ±65%" == found.format(".3g")
    assert Summary(mean=2.5) == Summary.of([1.0, 2.0, 3.0, 4.0])
    for values, written in (([3.0], "3"), ([1.0, 2.0, 3.0, 4.0], "2.5"), ([0.0] * 5, "0")):
        assert written == Summary.of(values).format(".3g")


def test_the_interval_covers_the_mean_with_few_repeats() -> None:
    """It does so for 95 % of the means of five normal figures; normal quantiles would for 88 %."""
    # fails by chance with probability 1e-9 over seeds
    rng = np.random.default_rng(1)
    samples = rng.normal(1.0, 0.2, size=(20_000, 5))
    summaries = [Summary.of(sample) for sample in samples]
    covered = np.mean([abs(found.mean - 1.0) <= found.half_width for found in summaries])

    assert 0.95 == pytest.approx(covered, abs=0.01)
