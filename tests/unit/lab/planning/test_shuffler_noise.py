import dataclasses
import math

import pytest

from common.accounting.count_distributions import Binomial
from common.accounting.item_noise import ItemNoiseRelease
from common.errors import AccountingError
from common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from lab.planning.shuffler_noise import (
    binomial_trials,
    geometric_spec,
    published_sageo_spec,
    sbin_trials,
)


def _delta(spec: ShufflerSpec, epsilon: float) -> float:
    return ItemNoiseRelease.of_shuffler(spec).delta(epsilon)


def test_published_noise_is_more_than_enough() -> None:
    """SBin's authors use 4.6 and 3.1 times the coins; SAGeo's a peak of 217 instead of 203."""
    for delta, ratio in ((1e-6, 4.6), (1e-12, 3.1)):
        coins = sbin_trials(0.1, delta, 1.0)
        assert ratio == pytest.approx(coins / binomial_trials(0.1, delta), abs=0.05)

    exact, published = geometric_spec(0.1, 1e-6).noise, published_sageo_spec(0.1, 1e-6).noise
    assert isinstance(exact, GeometricNoise)
    assert isinstance(published, GeometricNoise)
    assert (203, 217) == (exact.peak, published.peak)
    assert 799 == pytest.approx(exact.moments()[1], rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-12), (0.5, 1e-15)])
def test_published_noise_is_safe(epsilon: float, delta: float) -> None:
    """Both papers' noise satisfies the guarantee."""
    coins = Binomial(sbin_trials(epsilon, delta, 1.0), 0.5)

    assert _delta(published_sageo_spec(epsilon, delta), epsilon) <= delta
    assert ItemNoiseRelease(noise=coins).delta(epsilon) <= delta


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-12), (3.0, 1e-15), (0.02, 0.1)]
)
def test_calibrated_noise_is_minimal(epsilon: float, delta: float) -> None:
    """One coin, or one step of the peak, less breaks the guarantee."""
    trials, spec = binomial_trials(epsilon, delta), geometric_spec(epsilon, delta)

    def with_coins(number: int) -> float:
        return ItemNoiseRelease(noise=Binomial(number, 0.5)).delta(epsilon)

    assert with_coins(trials) <= delta
    assert trials == 1 or with_coins(trials - 1) > delta
    assert _delta(spec, epsilon) <= delta
    noise = spec.noise
    assert isinstance(noise, GeometricNoise)
    if noise.peak:
        lower = dataclasses.replace(noise, peak=noise.peak - 1, most=noise.most - 1)
        assert _delta(ShufflerSpec(noise=lower), epsilon) > delta


def test_corners_have_an_answer_or_a_refusal() -> None:
    """ε from 1e-6 to 50, δ down to 1e-15; an ε of 0 or ∞ and a δ of 0 are refused."""
    for delta in (1e-15, 1e-6, 0.5):
        assert getattr(geometric_spec(50.0, delta).noise, "peak", 3) <= 2
        assert binomial_trials(50.0, delta) <= 51
    with pytest.raises(AccountingError, match="dummies per item"):
        geometric_spec(1e-6, 1e-6)
    with pytest.raises(AccountingError, match="dummies per item"):
        binomial_trials(1e-3, 1e-6)
    for epsilon, delta in ((0.0, 1e-6), (math.inf, 1e-6), (0.1, 0.0)):
        for calibrate in (binomial_trials, geometric_spec, published_sageo_spec):
            with pytest.raises(AccountingError):
                calibrate(epsilon, delta)
