"""
Pairs of keys and values against their theory: shares, means, and the pull of fakes.

Each test has a fixed seed; over seeds it would fail by chance with probability below 1e-6: a mean
of so many collections is 5.2 standard errors off with probability 2e-7, and a variance of 24,000
estimates has a relative standard error of .9 %, so that it is 5 % off with probability 4e-8.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from common.mechanisms.key_value.estimator import PairEstimates
from common.mechanisms.key_value.pairs import Owned
from common.mechanisms.key_value.privkv import PairRequest, PrivKv
from deploy.results.privkvm import budgets, iteration

_FAR: Final = 5.2
_COLLECTIONS: Final = 12_000
_PEOPLE: Final = 400


def _people(
    shares: NDArray[np.float64], means: NDArray[np.float64], size: int, rng: np.random.Generator
) -> Owned:
    """Draw people: who owns what, with values even within a quarter of the mean."""
    values = means + rng.uniform(-0.25, 0.25, (size, len(means)))
    return np.where(rng.random((size, len(means))) < shares, values, np.nan)


@dataclass(frozen=True)
class _Collected:
    """Estimates of many collections, a row each."""

    frequencies: NDArray[np.float64]
    frequency_errors: NDArray[np.float64]
    means_with_fakes: NDArray[np.float64]
    errors_with_fakes: NDArray[np.float64]


def _collect(mechanism: PrivKv, people: Owned, rng: np.random.Generator) -> list[PairEstimates]:
    """Estimate from every _PEOPLE of them."""
    reports = mechanism.randomize(people, rng).reshape(-1, _PEOPLE)
    return [mechanism.estimate(mechanism.tally(each)) for each in reports]


def _stacked(found: list[PairEstimates]) -> _Collected:
    return _Collected(
        *(
            np.array([getattr(each, name) for each in found])
            for name in ("frequencies", "frequency_errors", "means_with_fakes", "errors_with_fakes")
        )
    )


def _mechanism(epsilon: float, fakes: tuple[float, ...] = ()) -> PrivKv:
    wanted = PairRequest(keys=2, low=-1.0, high=1.0, local_epsilon=epsilon, fakes=fakes)
    return PrivKv.of_spec(PrivKv.specify(wanted), 2)


def _is_mean(expected: NDArray[np.float64], drawn: NDArray[np.float64]) -> bool:
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    return bool((np.abs(drawn.mean(axis=0) - expected) < _FAR * error).all())


def _is_spread(expected: NDArray[np.float64], drawn: NDArray[np.float64]) -> bool:
    """Whether variances, over all keys, are within 5 % of what they should be."""
    return bool(abs((drawn.var(axis=0) / expected**2).mean() - 1) < 0.05)


def test_shares_are_those_of_the_very_people_asked() -> None:
    """400 people again and again: no bias, the variance of theory, and told of it on average."""
    rng = np.random.default_rng(1)
    people = _people(np.array([0.3, 0.8]), np.array([0.5, -0.25]), _PEOPLE, rng)
    shares = 1 - np.isnan(people).mean(axis=0)
    mechanism = _mechanism(2.0)
    found = _stacked(_collect(mechanism, np.tile(people, (_COLLECTIONS, 1)), rng))
    theory = mechanism.expected(shares, np.zeros(2), _PEOPLE)

    assert _is_mean(shares, found.frequencies)
    assert _is_spread(theory.frequency_errors, found.frequencies)
    # Plugging in an estimated share instead of the true one costs a little of f(1-f).
    np.testing.assert_allclose(
        (found.frequency_errors**2).mean(axis=0), theory.frequency_errors**2, rtol=0.01
    )


@pytest.mark.parametrize("fakes", [(), pytest.param((-1.0, 0.75), marks=pytest.mark.slow)])
def test_means_are_off_by_the_formula_and_vary_by_theory(fakes: tuple[float, ...]) -> None:
    """New people in every collection; fakes in the middle, and others."""
    rng = np.random.default_rng(2)
    shares, means = np.array([0.3, 0.8]), np.array([0.4, -0.25])
    mechanism = _mechanism(4.0, fakes)
    found = _stacked(_collect(mechanism, _people(shares, means, _COLLECTIONS * _PEOPLE, rng), rng))
    theory = mechanism.expected(shares, means, _PEOPLE)
    bias = mechanism.bias_of_fakes(shares, means)

    assert (np.abs(bias) > 0.005).all()
    np.testing.assert_allclose(theory.means_with_fakes, means + bias)
    assert _is_mean(means + bias, found.means_with_fakes)
    assert not _is_mean(means, found.means_with_fakes)
    assert _is_spread(theory.errors_with_fakes, found.means_with_fakes)
    np.testing.assert_allclose(
        (found.errors_with_fakes**2).mean(axis=0), theory.errors_with_fakes**2, rtol=0.03
    )


def test_without_fakes_the_means_are_those_of_the_owners() -> None:
    """Off by less than a third of the bias that was there, and told how far off they are."""
    rng = np.random.default_rng(3)
    shares, means = np.array([0.3, 0.5]), np.array([0.4, -0.6])
    mechanism = _mechanism(4.0)
    plain = _collect(mechanism, _people(shares, means, 4000 * _PEOPLE, rng), rng)
    owners = [mechanism.without_fakes(each) for each in plain]
    found = np.array([each.means for each in owners])
    errors = np.array([each.mean_errors for each in owners])
    bias = mechanism.bias_of_fakes(shares, means)

    assert (np.abs(found.mean(axis=0) - means) < np.abs(bias) / 3).all()
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), found.std(axis=0), rtol=0.1)


def test_iterating_leaves_of_the_bias_what_theory_says() -> None:
    """PrivKVM over 400,000 people: after each of three iterations, within chance."""
    rng = np.random.default_rng(4)
    shares, means = np.array([0.5, 0.8]), np.array([0.6, -0.7])
    people = _people(shares, means, 400_000, rng)
    whole = PairRequest(keys=2, low=-1.0, high=1.0, local_epsilon=8.0, key_share=0.25)
    before: NDArray[np.float64] | None = None
    fakes: list[NDArray[np.float64]] = []
    variance, left = np.zeros(2), np.zeros(2)
    for budget in budgets(8.0, 3, 0.25):
        mechanism = PrivKv.of_spec(PrivKv.specify(iteration(whole, budget, before)), 2)
        fakes.append(mechanism.share_of_fakes(shares))
        found = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
        variance = found.errors_with_fakes**2 + fakes[-1] ** 2 * variance
        left = -np.prod(fakes, axis=0) * means  # (t - m) · φ1 · φ2 · .., from t = 0
        assert (np.abs(found.means_with_fakes - means - left) < _FAR * np.sqrt(variance)).all()
        before = found.means_with_fakes

    assert (np.abs(left) < fakes[0] * np.abs(means) / 3).all()
