import dataclasses
import math
from typing import Final

import pytest

from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.errors import AccountingError
from shuffledp.common.task.shuffler_spec import GeometricNoise, ItemNoise, ShufflerSpec, SummedNoise
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.item_dummies import least_binomial, least_geometric
from tests.support.requirements import amplified_requirements, designed, small_requirements

_RATIOS: Final = (
    *((1.0, 1.157, 0.33), (0.5, 0.5855, 0.36), (0.1, 0.1202, 0.43)),
    *((1.0, 2.0, 0.27), (1.0, 4.0, 0.24), (0.5, 4.0, 0.26), (0.1, 1.0, 0.32)),
)
"""Central ε, coalition ε and the largest ratio to the central Gaussian's squared error."""


def _delta(noise: ItemNoise, epsilon: float) -> float:
    return ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=noise)).delta(epsilon)


def _published(protocol: str, epsilon: float, delta: float) -> ItemNoise:
    target = amplified_requirements(central_epsilon=epsilon, delta=delta, accounting="published")
    return designed(protocol, target).unclaimed.shuffler.noises[0]


def test_published_noise_is_more_than_enough() -> None:
    """SBin's authors use 4.6 and 3.1 times the coins; SAGeo's a peak of 217 instead of 203."""
    for delta, ratio in ((1e-6, 4.6), (1e-12, 3.1)):
        coins = _published("sbin", 0.1, delta).most
        assert ratio == pytest.approx(coins / least_binomial(0.1, delta).most, abs=0.05)

    exact, published = least_geometric(0.1, 1e-6), _published("sageo", 0.1, 1e-6)
    assert isinstance(published, GeometricNoise)
    assert (203, 217) == (exact.peak, published.peak)
    assert 799 == pytest.approx(exact.moments()[1], rel=1e-3)


@pytest.mark.parametrize("protocol", ["sbin", "sageo"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-12), (0.5, 1e-15)])
def test_published_noise_is_safe(protocol: str, epsilon: float, delta: float) -> None:
    """Both papers' noise satisfies the guarantee."""
    assert _delta(_published(protocol, epsilon, delta), epsilon) <= delta


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-12), (3.0, 1e-15), (0.02, 0.1)]
)
def test_calibrated_noise_is_minimal(epsilon: float, delta: float) -> None:
    """One coin, or one step of the peak, less breaks the guarantee."""
    trials, noise = least_binomial(epsilon, delta).trials, least_geometric(epsilon, delta)

    def with_coins(number: int) -> float:
        return ItemNoiseRelease(noise=Binomial(number, 0.5)).delta(epsilon)

    assert with_coins(trials) <= delta
    assert trials == 1 or with_coins(trials - 1) > delta
    assert _delta(noise, epsilon) <= delta
    if noise.peak:
        lower = dataclasses.replace(noise, peak=noise.peak - 1, most=noise.most - 1)
        assert _delta(lower, epsilon) > delta


def test_corners_have_an_answer_or_a_refusal() -> None:
    """ε from 1e-6 to 50, δ down to 1e-15; an ε of 0 or ∞ and a δ of 0 are refused."""
    for delta in (1e-15, 1e-6, 0.5):
        assert least_geometric(50.0, delta).peak <= 2
        assert least_binomial(50.0, delta).trials <= 51
    with pytest.raises(AccountingError, match="dummies per item"):
        least_geometric(1e-6, 1e-6)
    with pytest.raises(AccountingError, match="dummies per item"):
        least_binomial(1e-3, 1e-6)
    for epsilon, delta in ((0.0, 1e-6), (math.inf, 1e-6), (0.1, 0.0)):
        for calibrate in (least_binomial, least_geometric):
            with pytest.raises(AccountingError):
                calibrate(epsilon, delta)


def _two_shufflers(
    protocol: str, central: float, coalition: float, **changes: float
) -> tuple[Design, ItemNoise, ItemNoise]:
    """Return a design with the noises of both shufflers."""
    epsilons = {"central_epsilon": central, "coalition_epsilon": coalition}
    design = designed(protocol, small_requirements(shufflers=2, **epsilons, **changes))
    assert design.draft.relay is not None
    return design, design.draft.noises[0], design.draft.relay.noises[0]


@pytest.mark.parametrize(("central", "coalition", "ratio"), _RATIOS)
def test_two_shufflers_err_little_more_than_one(
    central: float, coalition: float, ratio: float
) -> None:
    """Both claims meet their targets nearly exactly; the first noise is no weaker."""
    design, first, second = _two_shufflers("sageo", central, coalition)
    claimed = (design.task.central_epsilon, design.task.coalition_epsilon)

    assert design.ratio_to_central_gaussian <= ratio
    assert claimed[0] <= central
    assert claimed[1] <= coalition
    assert claimed == pytest.approx((central, coalition), rel=1e-3)
    assert first.moments()[1] >= second.moments()[1]
    assert all(_delta(noise, coalition) <= 1e-6 for noise in (first, second))


def test_a_large_delta_needs_neither_noise_to_reach_the_coalition_epsilon() -> None:
    """At δ = .01 two nearly equal noises have the least variance."""
    design, first, second = _two_shufflers("sageo", 0.1, 4.0, delta=0.01)
    spreads = sorted(noise.moments()[1] for noise in (first, second))

    assert design.task.coalition_epsilon < 0.5
    assert spreads[1] < 1.5 * spreads[0]


@pytest.mark.parametrize(("central", "coalition"), [(1.0, 4.0), (0.5, 0.5855)])
def test_coins_of_two_shufflers_are_as_few_as_both_claims_allow(
    central: float, coalition: float
) -> None:
    """One coin less in all, or of the second shuffler, breaks a claim."""
    _, first, second = _two_shufflers("sbin", central, coalition)
    total, delta, room = first.most + second.most, 0.99e-6, 1.00015
    least = least_binomial(coalition / room, delta).trials

    assert second.most == least <= first.most
    assert total == max(2 * least, least_binomial(central / room, delta).trials)


@pytest.mark.slow
def test_rounds_of_two_shufflers_share_the_central_epsilon() -> None:
    """Three rounds compose to at most the target; each claims about a third of it."""
    design, *_ = _two_shufflers("sageo", 0.5, 4.0, rounds=3)

    assert 0.15 < design.task.central_epsilon < 0.25
    assert design.target.central_epsilon >= composed_epsilon(
        [design.parameters.release(design.parameters.anonymity_set(20_000))] * 3, 1e-6
    )


def test_a_loose_central_epsilon_changes_nothing() -> None:
    """Above the coalition ε, each noise alone meets the latter."""
    loose, first, second = _two_shufflers("sageo", 5.0, 4.0)

    assert (first, True) == (second, loose.task.central_epsilon < 4)
    assert isinstance(loose.unclaimed.shuffler.noises[0], SummedNoise)
