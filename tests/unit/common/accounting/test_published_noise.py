import math

import pytest

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.count_distributions import Binomial
from common.accounting.item_noise import ItemNoiseRelease, shuffler_noise_distribution
from common.accounting.published_noise import (
    aue,
    sageo,
    sageo_left,
    sageo_peak,
    sageo_right,
    sbin,
    sbin_trials,
)
from common.errors import BoundRangeError
from common.task.shuffler_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from deploy.planning.shuffler_noise import published_sageo_spec


def _coins(trials: int, kept: float = 1.0) -> ShufflerSpec:
    return ShufflerSpec(
        law="binomial", trials=trials, most=trials, keep_weight=int(kept * KEEP_SUM)
    )


def _flanks(epsilon: float, delta: float, kept: float) -> ShufflerSpec:
    """Return the noise that SAGeo's authors use, with weights rounded up."""
    left, right = sageo_left(epsilon, kept), sageo_right(epsilon, kept)
    peak = sageo_peak(epsilon, delta, kept, left, right)
    cut = math.ceil(math.log(1e-3 * delta) / math.log(right))
    return ShufflerSpec(
        law="geometric",
        keep_weight=int(kept * KEEP_SUM),
        peak=max(0, peak),
        left_weight=math.ceil(left * RATIO_SUM) + 1,
        right_weight=math.ceil(right * RATIO_SUM) + 1,
        most=max(0, peak) + cut,
    )


def test_aue_is_the_printed_formula() -> None:
    """G = 200·ln(4/δ)/(ε²n), inverted; far above the exact figure."""
    crowd = AnonymitySet(users=602_325, random_dummies=Binomial(602_325, 0.25))
    expected = math.sqrt(200 * math.log(4e6) / (0.25 * 602_325))

    assert aue(crowd, 1e-6) == pytest.approx(expected, rel=1e-12)
    exact = ItemNoiseRelease(noise=Binomial(602_325, 0.25)).epsilon(1e-6)
    assert 5 < expected / exact < 20


@pytest.mark.parametrize("kept", [1.0, 0.5])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-12)])
def test_calibrations_are_inverted(epsilon: float, delta: float, kept: float) -> None:
    """The bound of noise calibrated for an ε is that ε; the exact figure is smaller."""
    coins = _coins(sbin_trials(epsilon, delta, kept), kept)
    spec = _flanks(epsilon, delta, kept)

    assert epsilon == pytest.approx(sbin(coins, delta), rel=1e-2)
    assert sbin(coins, delta) <= epsilon
    assert epsilon == pytest.approx(sageo(spec, delta), rel=1e-5)
    for one, claim in ((coins, sbin(coins, delta)), (spec, sageo(spec, delta))):
        exact = ItemNoiseRelease(noise=shuffler_noise_distribution(one), kept=one.kept).epsilon(
            delta
        )
        assert exact <= claim * (1 + 1e-4)


def test_each_bound_keeps_to_its_range() -> None:
    """Another distribution, or too little noise."""
    geometric = published_sageo_spec(0.1, 1e-6)
    for bound, spec in ((sbin, geometric), (sbin, ShufflerSpec()), (sageo, _coins(100))):
        with pytest.raises(BoundRangeError, match="the law is"):
            bound(spec, 1e-6)
    with pytest.raises(BoundRangeError, match="more noise than there is"):
        sbin(_coins(5), 1e-12)
    narrow = ShufflerSpec(law="geometric", peak=0, left_weight=2**29, right_weight=2**29, most=40)
    with pytest.raises(BoundRangeError, match="more noise than there is"):
        sageo(narrow, 1e-12)
    with pytest.raises(BoundRangeError, match="says nothing"):
        sbin_trials(0.1, 0.5, 0.1)
    with pytest.raises(BoundRangeError, match="here are none"):
        aue(AnonymitySet(users=100), 1e-6)
    with pytest.raises(BoundRangeError, match="holds for ε ≤ 1"):
        aue(AnonymitySet(users=100, random_dummies=Binomial(100, 0.5)), 1e-6)
