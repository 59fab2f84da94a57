"""Every refinement but EM and Norm-Sub, which test_estimation.py has: by hand, and in corners."""

from random import Random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate

from analyzer.estimation.em import smooth, smoothed_likelihood, squarem_step
from analyzer.estimation.histogram import REFINEMENTS, DebiasedShares, gather, refine
from analyzer.estimation.projection import (
    _posterior_means,
    base_cut,
    norm_cut,
    norm_mul,
    norm_sub,
    power_law,
    power_ns,
)
from common.errors import TaskError
from common.mechanisms.base import Channel, Counts, Mixture, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from common.mechanisms.randomized_response import Grr
from common.mechanisms.weights import ResponseWeights
from common.protocols import PROTOCOLS, Refinement, protocols_of

_GRR = Grr(4, ResponseWeights.for_epsilon(1.0))
_WITHOUT_CELLS: tuple[Refinement, ...] = (
    "norm-sub",
    "norm-cut",
    "norm-mul",
    "base-cut",
    "power-ns",
)
_SHARES = arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6))
_DISTRIBUTIONS = arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1)).filter(
    lambda weights: weights.sum() > 0.1
)


def _evidence(
    shares: Vector, *, error: float = 0.05, n_users: float = 1000.0, channel: Channel | None = None
) -> DebiasedShares:
    errors = np.full(len(shares), error)
    return DebiasedShares(
        shares=shares,
        standard_errors=errors,
        absent_errors=errors,
        n_users=n_users,
        cells=np.zeros(len(shares), np.int64),
        channel=channel,
    )


def _is_distribution(refined: Vector) -> bool:
    return bool((refined >= 0).all()) and abs(float(refined.sum()) - 1) < 1e-9


# --- all of them --------------------------------------------------------------------------------


def test_every_name_that_a_protocol_may_say_has_a_refinement() -> None:
    """And no protocol asks a mechanism without cells for a likelihood."""
    assert set(get_args(Refinement)) == set(REFINEMENTS)
    for protocol in map(PROTOCOLS.__getitem__, protocols_of("categorical")):
        assert protocol.refinement in REFINEMENTS


@pytest.mark.parametrize("name", _WITHOUT_CELLS)
@given(shares=_SHARES, error=st.sampled_from([0.0, 1e-9, 0.05, 1e3]), n_users=st.floats(0.5, 1e9))
def test_whatever_the_shares_a_distribution_comes_of_them(
    name: Refinement, shares: Vector, error: float, n_users: float
) -> None:
    """All negative, a single item, shares far above 1, no error, much error, half a user."""
    refined = refine(_evidence(shares, error=error, n_users=n_users), name)

    assert shares.shape == refined.shape
    assert _is_distribution(refined)


@pytest.mark.parametrize("name", _WITHOUT_CELLS)
@given(shares=_SHARES, order=st.randoms(use_true_random=False))
def test_an_item_s_place_does_not_matter(name: Refinement, shares: Vector, order: Random) -> None:
    """Equal shares come out equal, and renumbering items renumbers the answer."""
    places = list(range(len(shares)))
    order.shuffle(places)
    straight = refine(_evidence(shares), name)

    np.testing.assert_allclose(refine(_evidence(shares[places]), name), straight[places], atol=1e-9)


@pytest.mark.parametrize("name", ["norm-sub", "norm-mul", "norm-cut"])
@given(weights=_DISTRIBUTIONS)
def test_a_distribution_is_left_alone(name: Refinement, weights: Vector) -> None:
    """So refining twice is refining once."""
    shares = weights / weights.sum()

    np.testing.assert_allclose(refine(_evidence(shares), name), shares, atol=1e-7)


@pytest.mark.parametrize("name", _WITHOUT_CELLS)
def test_where_every_share_is_negative_the_largest_are_the_least_unlikely(name: Refinement) -> None:
    """The closest distribution; Base-Cut finds nothing that stands out, and says uniform."""
    refined = refine(_evidence(np.array([-0.1, -0.1, -9.0])), name)

    if name == "base-cut":
        np.testing.assert_allclose(refined, [1 / 3] * 3)
    elif name == "power-ns":
        assert refined[0] == refined[1] >= refined[2]
    else:
        np.testing.assert_allclose(refined, [0.5, 0.5, 0])


# --- one by one ---------------------------------------------------------------------------------


def test_norm_mul_scales_what_is_positive() -> None:
    """.6 and .2 become three quarters and one."""
    np.testing.assert_allclose(norm_mul(np.array([0.6, -0.3, 0.2])), [0.75, 0, 0.25])


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.7, 0.2, 0.2, 0.1, -0.2], [7 / 11, 2 / 11, 2 / 11, 0, 0]),
        ([0.6, 0.5, 0.1], [6 / 11, 5 / 11, 0]),
        ([1.5, 0.5], [1, 0]),
        ([0.6, 0.2, -0.3], [0.75, 0.25, 0]),
        ([0.5, 0.5, 0.4], [0.5, 0.5, 0]),
    ],
)
def test_norm_cut_keeps_the_largest_until_they_reach_1(
    shares: list[float], expected: list[float]
) -> None:
    """Ties with the last one too; all that is positive where that does not reach 1."""
    np.testing.assert_allclose(norm_cut(np.array(shares)), expected)


def test_base_cut_keeps_what_stands_out_and_spreads_the_rest() -> None:
    """
    Of 20 items with error .1 the threshold is 2.807 errors: .29 stands out, .28 does not.

    Φ⁻¹(1 - .05/20) = 2.8070.
    """
    shares = np.array([0.29, 0.28, *[0.0] * 18])
    refined = base_cut(shares, np.full(20, 0.1))

    np.testing.assert_allclose(refined, [0.29, *[0.71 / 19] * 19])


def test_base_cut_projects_where_the_kept_exceed_1() -> None:
    """.9 and .3 are both kept, and lose as much each; the others are 0."""
    refined = base_cut(np.array([0.9, 0.3, 0.01]), np.full(3, 0.02))

    np.testing.assert_allclose(refined, [0.8, 0.2, 0])


def test_base_cut_is_seldom_mistaken_about_an_absent_item() -> None:
    """
    Noise alone lifts any of 1,000 items over the threshold in one collection of twenty.

    Seed 3; 50 alarms are expected of 1,000 collections: 15 and 100 are five and seven standard
    deviations away, so it fails by chance with probability below 1e-6.
    """
    rng = np.random.default_rng(3)
    uniform = np.full(1000, 1 / 1000)
    alarms = sum(
        bool((base_cut(rng.normal(0, 0.05, 1000), np.full(1000, 0.05)) != uniform).any())
        for _ in range(1000)
    )

    assert 15 <= alarms <= 100


@pytest.mark.parametrize(("mean", "least"), [(1e-3, 1e-6), (0.5, 1e-3), (2e-6, 1e-6), (0.1, 1e-9)])
def test_the_power_law_has_the_mean_that_is_asked_for(mean: float, least: float) -> None:
    """As a general integrator finds it, over logarithms."""
    steepness = power_law(mean, least)

    def moment(power: float) -> float:
        found, _ = integrate.quad(lambda x: np.exp((power - steepness) * x), np.log(least), 0)
        return float(found)

    assert mean == pytest.approx(moment(2) / moment(1), rel=1e-6)


@pytest.mark.parametrize("share", [-0.01, 0.0, 1e-5, 1e-3, 7.9e-3, 8.1e-3, 0.3, 0.999, 1.2])
@pytest.mark.parametrize("steepness", [0.3, 1.0, 1.7])
def test_a_posterior_mean_is_the_integral(share: float, steepness: float) -> None:
    """Of the normal law times the power law, near 0 and far from it, to a part in ten thousand."""
    sigma, least = 1e-3, 1e-6
    (found,) = _posterior_means(np.array([share]), np.array([sigma]), steepness, least)
    logs = np.linspace(np.log(least), 0, 2_000_001)
    seen = min(share, 1.0)
    weights = -((np.exp(logs) - seen) ** 2) / (2 * sigma**2) + (1 - steepness) * logs
    weights = np.exp(weights - weights.max())

    assert float(weights @ np.exp(logs) / weights.sum()) == pytest.approx(found, rel=1e-4)


def test_power_ns_shrinks_small_shares_and_leaves_large_ones() -> None:
    """Noise is taken out of what may be nothing; what is certain stays, up to the projection."""
    shares = np.array([0.5, *[0.004, -0.003] * 100])
    refined = power_ns(shares, np.full(201, 0.004), 10_000.0)
    projected = norm_sub(shares)

    assert float(((refined[1:] - 0.0025) ** 2).sum()) < float(((projected[1:] - 0.0025) ** 2).sum())
    assert 0.45 < refined[0] <= 0.55


def test_power_ns_without_error_is_norm_sub() -> None:
    """There is no noise to take out."""
    shares = np.array([0.5, 0.7, -0.1, 0.0])

    np.testing.assert_array_equal(norm_sub(shares), power_ns(shares, np.zeros(4), 100.0))


# --- smoothed -----------------------------------------------------------------------------------


_HASHED = LocalHashing(128, family_for(128, 7), ResponseWeights.for_epsilon(2.0), b"n" * 32)


def _smooth_case(seed: int) -> tuple[Vector, Counts, Channel]:
    """Of 50,000 users of a bell over 128 items, through local hashing at a local ε of 2."""
    bell = np.exp(-(((np.arange(128) - 70) / 30) ** 2))
    rng = np.random.default_rng(seed)
    users = rng.multinomial(50_000, bell / bell.sum())
    return users / 50_000, _HASHED.sample_cells(users, 0, rng), _HASHED.channel(1.0)


def test_smoothing_is_1_2_1_with_the_ends_reflected() -> None:
    """By hand."""
    np.testing.assert_allclose(smooth(np.array([0.4, 0.0, 0.0, 0.6])), [0.3, 0.1, 0.15, 0.45])
    assert [1.0] == smooth(np.array([1.0])).tolist()


def test_ems_reaches_what_plain_steps_reach() -> None:
    """
    The leaps change the way and not the goal: a fixed point of an EM step and smoothing.

    Seed 1; plain steps until none is longer than 1e-12.
    """
    _, cells, channel = _smooth_case(1)
    plain = np.full(128, 1 / 128)
    for _ in range(20_000):
        moved = plain * channel.adjoint(cells / channel.forward(plain)) / cells.sum()
        if np.abs(smooth(moved) - plain).sum() < 1e-12:
            break
        plain = smooth(moved)
    leapt = smoothed_likelihood(cells, channel, 128, min_change=1e-12)

    np.testing.assert_allclose(leapt, plain, atol=1e-6)


def test_ems_stops_where_nothing_more_would_be_noticed() -> None:
    """
    The default stop is as close to the truth as the fixed point itself, to a twentieth.

    Seeds 0 and 1; measured over five, the ratio is within .01 of 1.
    """
    for seed in range(2):
        truth, cells, channel = _smooth_case(seed)
        stopped = smoothed_likelihood(cells, channel, 128)
        settled = smoothed_likelihood(cells, channel, 128, min_change=1e-12)
        ratio = ((stopped - truth) ** 2).sum() / ((settled - truth) ** 2).sum()
        assert 0.95 < ratio < 1.05


def test_ems_beats_norm_sub_on_what_is_smooth() -> None:
    """Seed 2; it is several times closer, so chance plays no part."""
    truth, cells, channel = _smooth_case(2)
    shares = _HASHED.debias(cells, Mixture(n_real=50_000))
    smoothed = smoothed_likelihood(cells, channel, 128)

    assert 3 * ((smoothed - truth) ** 2).sum() < ((norm_sub(shares) - truth) ** 2).sum()


def test_ems_of_nothing_is_uniform() -> None:
    """No report, no evidence."""
    smoothed = smoothed_likelihood(np.zeros(4, np.int64), _GRR.channel(1.0), 4)

    assert [0.25] * 4 == smoothed.tolist()


@pytest.mark.parametrize("name", ["em", "ems"])
@given(cells=arrays(np.int64, 4, elements=st.integers(0, 10**6)))
def test_a_likelihood_gives_a_distribution_of_any_counts(name: Refinement, cells: Counts) -> None:
    """All reports in one cell, none at all, or any others."""
    evidence = gather(_GRR, cells, Mixture(n_real=max(1, int(cells.sum()))))

    assert _is_distribution(refine(evidence, name))


@pytest.mark.parametrize("name", ["em", "ems"])
def test_a_likelihood_without_cells_is_an_error(name: Refinement) -> None:
    """Better than another refinement without a word."""
    with pytest.raises(TaskError, match=f"the refinement {name} needs reports whose cells"):
        refine(_evidence(np.array([0.5, 0.5])), name)


# --- the rest -----------------------------------------------------------------------------------


def test_a_leap_lands_on_a_distribution() -> None:
    """
    Something is left of every item where it would leave the simplex; where nothing moves, it stays.

    An EM step multiplies, so what was cut to 0 would never come back.
    """
    still = np.array([0.5, 0.5])
    start, first, second = np.array([0.5, 0.5]), np.array([0.3, 0.7]), np.array([0.11, 0.89])

    np.testing.assert_array_equal(squarem_step(still, still, still), still)
    landed = squarem_step(start, first, second)
    assert float(landed.sum()) == pytest.approx(1)
    assert 1e-3 < landed[0] < 0.11
