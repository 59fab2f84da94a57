"""
What a trusted collector draws, against exact laws and exact errors.

Each test has a fixed seed. Over seeds a chi-square test fails by chance with probability 1e-7, and
a mean squared error of 60,000 Laplace draws has a relative standard error of .9 %, of 30,000
Gaussian ones of .8 %: 5 % off is more than 5 standard errors, probability below 5e-7.
"""

from fractions import Fraction
from typing import Final, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from deploy.simulate.baselines.central_histogram import CentralHistogram
from deploy.simulate.baselines.central_mean import CentralMean
from deploy.simulate.baselines.choices import quantile, quantile_utilities
from deploy.simulate.baselines.noise import GaussianNoise, LaplaceNoise
from deploy.simulate.baselines.selection import Method, Selection

_FALSE_ALARM: Final = 1e-7
_METHODS: Final[tuple[Method, ...]] = get_args(Method)


def _fits(drawn: NDArray[np.int64], law: NDArray[np.float64], reach: int) -> bool:
    """Compare draws with a law over -reach .. reach, whose last cells hold all that is beyond."""
    seen = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)
    return bool(stats.chisquare(seen, law / law.sum() * len(drawn)).pvalue > _FALSE_ALARM)


def _within(law: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """Fold the tails of a law over symmetric whole numbers into -reach and reach."""
    middle = len(law) // 2
    folded = law[middle - reach : middle + reach + 1].copy()
    folded[0] += law[: middle - reach].sum()
    folded[-1] += law[middle + reach + 1 :].sum()
    return folded


_WIDE: Final = np.arange(-20_000, 20_001)


@pytest.mark.parametrize(("epsilon", "reach"), [(3.0, 4), (0.5, 25)])
def test_laplace_noise_has_its_law(epsilon: float, reach: int) -> None:
    """300,000 draws of scales 2/3 and 4."""
    noise = LaplaceNoise(epsilon, 2)
    law = np.exp(-np.abs(_WIDE) / float(noise.scale))

    assert _fits(noise.draw(300_000, np.random.default_rng(1)), _within(law, reach), reach)


@pytest.mark.parametrize(("sensitivity", "reach"), [(1, 10), (40, 70)])
def test_gaussian_noise_has_its_law(sensitivity: int, reach: int) -> None:
    """100,000 draws; whole numbers far apart, and close together."""
    noise = GaussianNoise(2.0, 0.01, sensitivity**2)
    law = np.exp(-(_WIDE.astype(np.float64) ** 2) / (2 * noise.variance))

    assert _fits(noise.draw(100_000, np.random.default_rng(2)), _within(law, reach), reach)


def test_the_tests_above_notice_two_percent() -> None:
    """Their power: noise of an ε that much larger is rejected."""
    law = np.exp(-np.abs(_WIDE) / float(LaplaceNoise(0.5, 2).scale))
    drawn = LaplaceNoise(0.51, 2).draw(300_000, np.random.default_rng(3))

    assert not _fits(drawn, _within(law, 25), 25)


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize("epsilon", [0.2, pytest.param(1.5, marks=pytest.mark.slow)])
def test_choices_have_their_law(method: Method, epsilon: float) -> None:
    """20,000 choices among eight, of which some are far behind, and two alike."""
    selection, rng = Selection(epsilon, method), np.random.default_rng(4)
    utilities = np.array([9, 10, 10, 4, 0, 8, 7, 3])
    chosen = [selection.choose(utilities, rng) for _ in range(20_000)]
    law = selection.law(utilities)
    seen = np.bincount(chosen, minlength=8)
    rare = law * 20_000 < 10  # a chi-square needs more than a few of each
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(law[~rare], law[rare].sum()) * 20_000
    kept = expected > 0

    assert stats.chisquare(seen[kept], expected[kept]).pvalue > _FALSE_ALARM


def test_a_median_is_off_by_the_law_of_its_ranks() -> None:
    """2,000 choices over 33 points of 500 people, by how many are on the wrong side."""
    rng = np.random.default_rng(5)
    values = np.clip(rng.normal(0.2, 0.3, 500), -1, 1)
    utilities = quantile_utilities(values, Fraction(1, 2), 33)
    drawn = [quantile(values, Fraction(1, 2), 0.05, rng, points=33) for _ in range(2000)]
    wrong = -utilities[np.rint((np.array(drawn) + 1) * 16).astype(np.int64)]
    law = Selection(0.05).law(utilities)
    mean = law @ -utilities
    spread = np.sqrt((law @ utilities**2 - mean**2) / 2000)

    # Of 2,000 choices; 5.2 standard errors have a probability of 2e-7.
    assert abs(wrong.mean() - mean) < 5.2 * spread


@pytest.mark.parametrize(
    ("made", "size"),
    [(CentralHistogram.laplace(0.3), 60_000), (CentralHistogram.gaussian(0.3, 1e-6), 30_000)],
    ids=["laplace", "gaussian"],
)
def test_shares_err_by_their_exact_error(made: CentralHistogram, size: int) -> None:
    """One release of so many counts: no bias, and the mean squared error within 5 %."""
    rng = np.random.default_rng(6)
    counts = rng.integers(0, 100, size)
    error = made.release(counts, rng) - counts / counts.sum()
    exact = made.mse(int(counts.sum()))

    assert abs(error.mean()) < 5.2 * np.sqrt(exact / size)
    assert np.mean(error**2) == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize(
    ("made", "repeats"),
    [
        pytest.param(CentralMean.laplace(2.0), 60_000, marks=pytest.mark.slow),
        (CentralMean.laplace(2.0, 600), 100),
        (CentralMean.gaussian(2.0, 1e-6, 600), 50),
    ],
    ids=["one number", "laplace", "gaussian"],
)
def test_means_err_by_their_exact_error(made: CentralMean, repeats: int) -> None:
    """Of five people, again and again: no bias, and the mean squared error within 5 %."""
    rng = np.random.default_rng(7)
    values = rng.uniform(-1, 1, (5, made.dimensions))
    truth = values.mean(axis=0)
    error = np.array([made.release(values, rng) - truth for _ in range(repeats)])
    exact = made.mse(5)

    assert abs(error.mean()) < 5.2 * np.sqrt(exact / error.size)
    assert np.mean(error**2) == pytest.approx(exact, rel=0.05)
