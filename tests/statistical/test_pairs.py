"""
Shares and means of key-value pairs against theory, and the bias of fakes.

Each test has a fixed seed; over seeds it fails by chance with probability below 1e-6: a mean of
thousands of collections is off by 5.2 standard errors with probability 2e-7, and a variance of
24,000 estimates has a relative standard error of .9 %, so it is off by 5 % with probability 4e-8.
"""

from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.mechanisms.key_value.estimator import PairEstimates
from shuffledp.common.mechanisms.key_value.pairs import Owned
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.task.draft import PairDraft
from shuffledp.deploy.results.next_task import iteration
from shuffledp.lab.planning.predictions import expected_pairs

_FAR: Final = 5.2
_COLLECTIONS: Final = 12_000
_PEOPLE: Final = 400


def _people(
    shares: NDArray[np.float64], means: NDArray[np.float64], size: int, rng: np.random.Generator
) -> Owned:
    """Draw people with values uniform within a quarter of the mean."""
    values = means + rng.uniform(-0.25, 0.25, (size, len(means)))
    return np.where(rng.random((size, len(means))) < shares, values, np.nan)


def _collect(mechanism: PrivKv, people: Owned, rng: np.random.Generator) -> list[PairEstimates]:
    """Estimate from each group of _PEOPLE."""
    reports = mechanism.randomize(people, rng).reshape(-1, _PEOPLE)
    return [mechanism.estimate(mechanism.tally(each)) for each in reports]


def _stacked(found: list[PairEstimates], name: str) -> NDArray[np.float64]:
    """Return the named estimate of all collections, in one row each."""
    return np.array([getattr(each, name) for each in found])


def _mechanism(epsilon: float, fakes: tuple[float, ...] = ()) -> PrivKv:
    return PrivKv.of_spec(PrivKv.specify(PairDraft(fakes=fakes), epsilon), 2)


def _is_mean(expected: NDArray[np.float64], drawn: NDArray[np.float64]) -> bool:
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    return bool((np.abs(drawn.mean(axis=0) - expected) < _FAR * error).all())


def _is_spread(expected: NDArray[np.float64], drawn: NDArray[np.float64]) -> bool:
    """Check that variances over all keys are within 5 % of those expected."""
    return bool(abs((drawn.var(axis=0) / expected**2).mean() - 1) < 0.05)


@pytest.mark.slow
def test_shares_are_unbiased_with_the_predicted_variance() -> None:
    """Over 12,000 collections from 400 people, the stated errors are right on average."""
    rng = np.random.default_rng(1)
    people = _people(np.array([0.3, 0.8]), np.array([0.5, -0.25]), _PEOPLE, rng)
    shares = 1 - np.isnan(people).mean(axis=0)
    mechanism = _mechanism(2.0)
    found = _collect(mechanism, np.tile(people, (_COLLECTIONS, 1)), rng)
    frequencies = _stacked(found, "frequencies")
    errors = _stacked(found, "frequency_errors")
    theory = expected_pairs(mechanism, shares, np.zeros(2), _PEOPLE)

    assert _is_mean(shares, frequencies)
    assert _is_spread(theory.frequency_errors, frequencies)
    # Plugging in an estimated share instead of the true one costs a little of f(1-f).
    np.testing.assert_allclose((errors**2).mean(axis=0), theory.frequency_errors**2, rtol=0.01)


def test_intervals_of_shares_cover_them_with_few_reports() -> None:
    """
    Of 50 people with six keys, owned by a half, a quarter or none, in 4,000 collections.

    Measured over 8,000, the least coverage of `share_interval` is 93.8 % (88.6 % of normal
    intervals), so that it is below 91.2 % by chance with probability below 1e-9 over seeds.
    """
    rng, collections, n_users = np.random.default_rng(6), 4000, 50
    people = np.full((n_users, 6), np.nan)
    people[:25, :2] = people[:12, 2:4] = 0.5
    owned, covered = 1 - np.isnan(people).mean(axis=0), np.zeros(6)
    mechanism = PrivKv.of_spec(PrivKv.specify(PairDraft(), 4.0), 6)
    reports = mechanism.randomize(np.tile(people, (collections, 1)), rng)
    for cells in map(mechanism.tally, reports.reshape(-1, n_users)):
        shares = mechanism.estimate(cells).frequencies
        low, high = mechanism.share_interval(shares, cells.sum(axis=1), 0.95)
        covered += (low <= owned) & (owned <= high)

    assert covered.min() >= 0.912 * collections


@pytest.mark.slow
@pytest.mark.parametrize("fakes", [(), (-1.0, 0.75)])
def test_means_have_the_predicted_bias_and_variance(fakes: tuple[float, ...]) -> None:
    """With new people in every collection, bias and variance match for fakes anywhere."""
    rng = np.random.default_rng(2)
    shares, means = np.array([0.3, 0.8]), np.array([0.4, -0.25])
    mechanism = _mechanism(4.0, fakes)
    found = _collect(mechanism, _people(shares, means, _COLLECTIONS * _PEOPLE, rng), rng)
    estimated = _stacked(found, "means_with_fakes")
    errors = _stacked(found, "errors_with_fakes")
    theory = expected_pairs(mechanism, shares, means, _PEOPLE)
    bias = mechanism.bias_of_fakes(shares, means)

    assert (np.abs(bias) > 0.005).all()
    np.testing.assert_allclose(theory.means_with_fakes, means + bias)
    assert _is_mean(means + bias, estimated)
    assert not _is_mean(means, estimated)
    assert _is_spread(theory.errors_with_fakes, estimated)
    np.testing.assert_allclose((errors**2).mean(axis=0), theory.errors_with_fakes**2, rtol=0.03)


def test_removing_fakes_gives_the_means_of_owners() -> None:
    """The remaining bias is below a third of the former, and the stated errors are right."""
    rng = np.random.default_rng(3)
    shares, means = np.array([0.3, 0.5]), np.array([0.4, -0.6])
    mechanism = _mechanism(4.0)
    plain = _collect(mechanism, _people(shares, means, 2000 * _PEOPLE, rng), rng)
    owners = [mechanism.without_fakes(each) for each in plain]
    found = np.array([each.means for each in owners])
    errors = np.array([each.mean_errors for each in owners])
    bias = mechanism.bias_of_fakes(shares, means)

    assert (np.abs(found.mean(axis=0) - means) < np.abs(bias) / 3).all()
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), found.std(axis=0), rtol=0.1)


def test_iterations_reduce_the_bias_as_predicted() -> None:
    """The bias over 400,000 people is the predicted one after each of three iterations."""
    rng = np.random.default_rng(4)
    shares, means = np.array([0.5, 0.8]), np.array([0.6, -0.7])
    people = _people(shares, means, 400_000, rng)
    whole = PairDraft(key_share=0.25)
    before: NDArray[np.float64] | None = None
    fakes: list[NDArray[np.float64]] = []
    variance, left = np.zeros(2), np.zeros(2)
    for number in (1, 2, 3):
        epsilon, draft = iteration(whole, 8.0, 3, number, before)
        mechanism = PrivKv.of_spec(PrivKv.specify(draft, epsilon), 2)
        fakes.append(mechanism.share_of_fakes(shares))
        found = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
        variance = found.errors_with_fakes**2 + fakes[-1] ** 2 * variance
        left = -np.prod(fakes, axis=0) * means  # (t - m) · φ1 · φ2 · .., from t = 0
        assert (np.abs(found.means_with_fakes - means - left) < _FAR * np.sqrt(variance)).all()
        before = found.means_with_fakes

    assert (np.abs(left) < fakes[0] * np.abs(means) / 3).all()


def test_intervals_of_owners_means_cover_with_few_reports() -> None:
    """
    Everybody of 25 owns the first of two keys, with values across the range, and half the second.

    Of 3,000 collections at most as many miss the first key's mean as chance exceeds with
    probability 1e-6; normal intervals of a dozen values miss it with some 10 %.
    """
    rng, runs, size = np.random.default_rng(7), 3000, 25
    people = np.stack([np.linspace(-1, 1, size), np.full(size, np.nan)], axis=1)
    people[::2, 1] = 0.5
    mechanism = PrivKv.of_spec(PrivKv.specify(PairDraft(), 6.0), 2)
    missed = normal = 0
    for reports in mechanism.randomize(np.tile(people, (runs, 1)), rng).reshape(runs, size):
        estimated = mechanism.estimate(mechanism.tally(reports))
        signs = estimated.means_with_fakes, estimated.errors_with_fakes
        below, above = mechanism.stretch(*signs, 0.95)
        found = mechanism.without_fakes(estimated)
        far = found.means[0] / found.mean_errors[0]
        missed += not -above[0] <= far <= below[0]
        normal += abs(far) > 1.96

    most = stats.binom.isf(1e-6, runs, 0.05)
    assert missed <= most < normal
