"""The smoother against dense linear algebra, and shifts."""

from itertools import pairwise

import numpy as np
import pytest

from shuffledp.common.messages.result import Figures
from shuffledp.deploy.results.local_level import STEPS, Observations, smooth


def _observed() -> Observations:
    """Return values of 25 rounds with unequal noise, the fifth without any."""
    rng = np.random.default_rng(5)
    noise = rng.uniform(0.5, 1.5, (25, 1)) ** 2
    levels = 10 + np.cumsum(0.4 * rng.standard_normal((25, 1)), axis=0)
    n_users = np.full(25, 10**6)
    n_users[4] = 0
    values = levels + np.sqrt(noise) * rng.standard_normal((25, 1))
    return Observations(values=values, noise=noise, n_users=n_users, high=20.0)


def _dense(values: Figures, variances: Figures, step: float) -> tuple[Figures, Figures, float]:
    """Return an item's levels, variances and diffuse log-likelihood by solving all at once."""
    seen = np.isfinite(variances)
    weights, walk = np.diag(1 / variances), np.diff(np.eye(len(values)), axis=0)
    covariance = np.asarray(np.linalg.inv(weights + walk.T @ walk / step), dtype=np.float64)
    times, contrasts = np.flatnonzero(seen), np.diff(np.eye(seen.sum()), axis=0)
    spread = step * np.minimum.outer(times, times) + np.diag(variances[seen])
    inner, moved = contrasts @ spread @ contrasts.T, contrasts @ values[seen]
    likelihood = -(np.linalg.slogdet(inner)[1] + moved @ np.linalg.solve(inner, moved)) / 2
    return covariance @ weights @ values, np.diag(covariance), float(likelihood)


def _averaged(observed: Observations, *begins: int) -> tuple[Figures, Figures]:
    """Return an item's levels and errors, averaged over STEPS, with new levels at these rounds."""
    noise = np.where(observed.n_users > 0, observed.noise[:, 0], np.inf)
    typical = 1 / np.mean(1 / noise[np.isfinite(noise)])
    parts = [slice(*each) for each in pairwise((0, *begins, len(noise)))]
    values, solved = observed.values[:, 0], []
    for step in STEPS * typical:
        found = [_dense(values[part], noise[part], step) for part in parts]
        levels, variances = (np.concatenate(each) for each in list(zip(*found, strict=True))[:2])
        solved.append((levels, variances, sum(each[2] for each in found)))
    likelihoods = np.array([each[2] for each in solved])
    weights = np.minimum(STEPS, 1.0) ** 0.4 * np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    levels = np.array([each[0] for each in solved])
    spread = np.array([each[1] for each in solved]) + (levels - weights @ levels) ** 2
    return weights @ levels, np.sqrt(weights @ spread)


def test_the_smoother_equals_the_average_of_all_equations_solved_at_once() -> None:
    """
    Levels and variances of each step's variance, weighted by likelihood and prior [DK12].

    The variance of the average includes the spread of the levels. A missing round is a step.
    """
    observed = _observed()
    found = smooth(observed)
    levels, errors = _averaged(observed)

    assert levels == pytest.approx(found.levels[:, 0], abs=1e-9)
    assert errors == pytest.approx(found.errors[:, 0], abs=1e-9)
    assert not found.shifts.any()


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("size", [4.2, 20.0])
def test_rounds_from_a_shift_on_are_smoothed_alone_but_for_the_steps(gap: int, size: float) -> None:
    """
    The mean of two rounds finds the smaller one, with rounds between them that have no values.

    Both sides tell the variance of steps, and the jump itself does not.
    """
    values = np.tile([0.3, -0.3, 0.2, -0.5], 6)[:, np.newaxis] + 10
    values[13:] += size
    n_users = np.full(24, 10**6)
    n_users[14 : 14 + gap] = 0
    observed = Observations(values=values, noise=0 * values + 1, n_users=n_users, high=20.0)
    found = smooth(observed)
    levels, errors = _averaged(observed, 13)

    assert [13] == np.flatnonzero(found.shifts).tolist()
    assert levels == pytest.approx(found.levels[:, 0], abs=1e-9)
    assert errors == pytest.approx(found.errors[:, 0], abs=1e-9)


def test_constant_shares_are_averaged_and_items_learn_from_each_other() -> None:
    """The error falls nearly to that of the mean of all rounds, and further with more items."""
    errors = []
    for items in (1, 50):
        values = 0.25 + 0.01 * np.random.default_rng(2).standard_normal((60, items))
        n_users = np.full(60, 10**6)
        found = smooth(Observations(values=values, noise=0 * values + 1e-4, n_users=n_users))
        errors.append(100 * found.errors.mean())

    assert 60**-0.5 < errors[1] < 0.9 * errors[0] < 0.25


def test_the_sampling_error_of_other_people_is_that_of_their_shares() -> None:
    """It is f(1 - f) / n at the smoothed share, and 0 for the same people or without users."""
    n_users = np.array([1000] * 30 + [0])
    values = np.tile([0.2, 0.02], (31, 1))
    others, same = (
        smooth(Observations(values=values, noise=0 * values + 1e-6, n_users=n_users, parts=parts))
        for parts in ((1.0,), (0.0,))
    )

    assert 1.6e-4 == pytest.approx(others.sampling[3, 0])
    assert 1.96e-5 == pytest.approx(others.sampling[3, 1])
    assert 0 == others.sampling[30].max() == same.sampling.max()
    assert others.errors.mean() > 3 * same.errors.mean()


def test_values_without_noise_are_followed() -> None:
    """Their level moves with them; an item's variance is at least that of one user."""
    values = np.linspace(0.1, 0.9, 9)[:, np.newaxis] ** 2
    found = smooth(Observations(values=values, noise=0 * values, n_users=np.full(9, 10**4)))

    assert values == pytest.approx(found.levels, abs=2e-4)
    assert 2e-4 > found.errors.max() > 5e-5
