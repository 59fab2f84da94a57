"""The smoother against dense linear algebra, and shifts."""

import numpy as np
import pytest

from common.messages.result import Figures
from deploy.results.local_level import STEPS, Observations, smooth

_MISSING = 4


def _observed(items: int = 1, **changes: object) -> Observations:
    """Return values of 25 rounds with unequal noise, the fifth without any."""
    rng = np.random.default_rng(5)
    noise = rng.uniform(0.5, 1.5, (25, items)) ** 2
    levels = 10 + np.cumsum(0.4 * rng.standard_normal((25, items)), axis=0)
    n_users = np.full(25, 10**6)
    n_users[_MISSING] = 0
    values = levels + np.sqrt(noise) * rng.standard_normal((25, items))
    given = {"values": values, "noise": noise, "n_users": n_users, "high": 20.0, **changes}
    return Observations(**given)  # type: ignore[arg-type]


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


def test_the_smoother_equals_the_average_of_all_equations_solved_at_once() -> None:
    """
    Levels and variances of each step's variance, weighted by likelihood and prior [DK12].

    The variance of the average includes the spread of the levels. A missing round is a step.
    """
    observed = _observed()
    found = smooth(observed)
    noise = np.where(observed.n_users > 0, observed.noise[:, 0], np.inf)
    typical = 1 / np.mean(1 / noise[np.isfinite(noise)])
    solved = [_dense(observed.values[:, 0], noise, step * typical) for step in STEPS]
    likelihoods = np.array([each[2] for each in solved])
    weights = np.minimum(STEPS, 1 / STEPS) ** 0.4 * np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()

    levels = np.array([each[0] for each in solved])
    mean = weights @ levels
    spread = np.array([each[1] for each in solved]) + (levels - mean) ** 2
    assert mean == pytest.approx(found.levels[:, 0], abs=1e-9)
    assert np.sqrt(weights @ spread) == pytest.approx(found.errors[:, 0], abs=1e-9)
    assert 0 < weights[STEPS > 10].sum() < 1e-3 < weights.max() < 0.9
    assert not found.shifts.any()


def test_constant_shares_are_averaged_and_items_learn_from_each_other() -> None:
    """The error falls nearly to that of the mean of all rounds, and further with more items."""
    errors = []
    for items in (1, 50):
        values = 0.25 + 0.01 * np.random.default_rng(2).standard_normal((60, items))
        n_users = np.full(60, 10**6)
        found = smooth(Observations(values=values, noise=0 * values + 1e-4, n_users=n_users))
        errors.append(100 * found.errors.mean())

    assert 60**-0.5 < errors[1] < 0.9 * errors[0] < 0.25


@pytest.mark.parametrize(
    ("size", "first", "flagged"),
    [(9.0, 20, 20), (6.0, 20, 20), (4.3, 20, 20), (1.5, 20, None)],
)
@pytest.mark.parametrize("gap", [0, 2])
def test_a_shift_starts_the_filter_again(
    size: float, first: int, flagged: int | None, gap: int
) -> None:
    """
    At once if it is large, else by the mean of two rounds, also around rounds without values.

    The level after it is then as if the rounds before had never been, and its start is found.
    """
    values = np.tile([0.01, -0.01], 16)[:, np.newaxis] / 3 + 0.5
    values[first:] += 0.01 * size
    n_users = np.full(32, 10**6)
    n_users[first + 1 : first + 1 + gap] = 0
    given = {"noise": np.full(values.shape, 1e-4)}
    found = smooth(Observations(values=values, n_users=n_users, **given))

    assert ([] if flagged is None else [flagged]) == np.flatnonzero(found.shifts).tolist()
    if flagged is not None:
        assert found.levels[first - 1, 0] == pytest.approx(0.5, abs=0.002)
        assert found.levels[first, 0] == pytest.approx(0.5 + 0.01 * size, abs=0.003)
        assert found.errors[first, 0] > 1.3 * found.errors[first - 10, 0]


def test_the_sampling_error_of_other_people_is_that_of_their_shares() -> None:
    """It is f(1 - f) / n at the smoothed share, and 0 for the same people or without users."""
    n_users = np.array([1000] * 30 + [0])
    values = np.tile([0.2, 0.02], (31, 1))
    given = {"values": values, "noise": 0 * values + 1e-6, "n_users": n_users}
    others, same = (smooth(Observations(**given, parts=parts)) for parts in ((1.0,), (0.0,)))

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
