"""Bounds and attacks for tiny batches, against the exact δ over every data set and outcome."""

import itertools
import math
from typing import NamedTuple

import pytest
from scipy import stats

from shuffledp.common.accounting.amplification import delta_upper, epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.clones import CloneRelease
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.mechanisms.discovery.prefix_hashing import Columns, PrefixHashing
from shuffledp.common.mechanisms.numeric.coded_number import Duchi
from shuffledp.common.mechanisms.numeric.coordinate_sampling import Harmony
from shuffledp.common.mechanisms.numeric.mean_est import MeanEst
from shuffledp.common.mechanisms.numeric.piecewise import Piecewise
from shuffledp.common.mechanisms.reduction import MatchCountReduction, Reduction
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.lab.bounds.general_blanket import blanket_delta
from shuffledp.lab.bounds.other_bounds import VariationRatio, clones_of_2021
from shuffledp.lab.bounds.randomizers import duchi
from tests.support.exhaustive_delta import (
    Distribution,
    band_distribution,
    corner_distribution,
    duchi_distribution,
    every_function_distribution,
    grr_distribution,
    hashing_distribution,
    mixed,
    prefix_distribution,
    sampled_distribution,
    true_delta,
    unary_distribution,
    uniform_distribution,
)
from tests.support.reductions import of_grr, of_hashing
from tests.support.reference_bounds import delta_lower, match_count_pair, unary

_ENUMERATION_ERROR = 1e-15
"""Rounding error of the enumeration's sums."""
_3_TO_1 = ResponseWeights(true=3, other=1)

_SHARES = pytest.mark.parametrize(
    "share", [0.4, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.05, 0.8))]
)
"""Of the local ε."""

Point = tuple[float, ...]


class _Instance(NamedTuple):
    """A randomizer over few values."""

    pmfs: list[Distribution]
    dummy: Distribution
    reduction: Reduction | None
    kind: str = "other"


def _uniform(
    pmfs: list[Distribution], reduction: Reduction | None, kind: str = "other"
) -> _Instance:
    """Return an instance whose dummies are uniform reports."""
    return _Instance(pmfs, uniform_distribution(sorted(pmfs[0])), reduction, kind)


def _grr(items: int, local_epsilon: float) -> _Instance:
    pmfs = [grr_distribution(value, items, local_epsilon) for value in range(items)]
    return _uniform(pmfs, of_grr(items, local_epsilon), "grr")


def _functions(values: int, buckets: int, local_epsilon: float) -> _Instance:
    """All functions from values to buckets, a pairwise independent hash family."""
    pmfs = [
        every_function_distribution(value, values, buckets, local_epsilon)
        for value in range(values)
    ]
    reduction = of_hashing(buckets, local_epsilon)
    return _uniform(pmfs, reduction, f"{values} hashed values")


def _field(seeds: range, local_epsilon: float) -> _Instance:
    """Hashing over the field of three elements, with or without seed 0."""
    pmfs = [hashing_distribution(value, 3, local_epsilon, seeds) for value in range(3)]
    return _uniform(pmfs, of_hashing(3, local_epsilon))


def _plane(values: tuple[int, ...], local_epsilon: float) -> _Instance:
    """Hashing over two digits of the field of three elements; 0, 1 and 2 lie on a line."""
    pmfs = [hashing_distribution(value, 3, local_epsilon, range(9)) for value in values]
    return _uniform(pmfs, of_hashing(3, local_epsilon), "plane")


def _unary(items: int, p: float, q: float) -> _Instance:
    pmfs = [unary_distribution(value, items, p, q) for value in range(items)]
    return _Instance(pmfs, unary_distribution(None, items, p, q), unary(p, q))


def _duchi(local_epsilon: float) -> _Instance:
    pmfs = [duchi_distribution(value, local_epsilon) for value in (-1.0, -0.3, 0.6, 1.0)]
    return _uniform(pmfs, duchi(local_epsilon))


def _band(points: int, reach: int) -> list[Distribution]:
    return [band_distribution(point, points, reach) for point in range(points)]


def _square_wave(items: int, reach: int) -> _Instance:
    return _uniform(_band(items, reach), SquareWave(items, reach, _3_TO_1).reduction)


def _piecewise(steps: int, reach: int) -> _Instance:
    """Points of the grid, and a number between two of them."""
    pmfs = _band(steps + 1, reach)
    between = mixed(pmfs[0], pmfs[1], 2 / 3)
    return _uniform([*pmfs, between], Piecewise(steps, reach, _3_TO_1).reduction)


_INSIDE: dict[int, list[Point]] = {1: [(1 / 3,)], 2: [(0, 1), (1 / 3, -1 / 4)], 3: [(1 / 3, -1, 0)]}
"""Points of the cube that are not corners."""


def _points(dimensions: int) -> list[Point]:
    return [*itertools.product((-1, 1), repeat=dimensions), *_INSIDE[dimensions]]


def _harmony(dimensions: int) -> _Instance:
    bits = [[duchi_distribution(t, math.log(3)) for t in point] for point in _points(dimensions)]
    pmfs = [sampled_distribution(of_point, 1) for of_point in bits]
    return _uniform(pmfs, Harmony(dimensions, 1, Duchi(_3_TO_1)).reduction)


def _mean_est(dimensions: int) -> _Instance:
    pmfs = [corner_distribution(point) for point in _points(dimensions)]
    return _uniform(pmfs, MeanEst(dimensions, _3_TO_1).reduction)


@_SHARES
@pytest.mark.parametrize(
    ("instance", "anonymity_sets"),
    [
        (_grr(2, 1.0), [(1, 0), (7, 0), (5, 2)]),
        (_grr(3, 0.5), [(1, 0), (1, 2), (2, 0), (2, 2), (4, 1), (7, 0)]),
        (_grr(3, 3.0), [(1, 0), (2, 2), (3, 1), (4, 0), (7, 0)]),
        (_grr(4, 2.0), [(2, 0), (3, 1), (5, 0)]),
        (_functions(2, 2, 1.0), [(1, 0), (3, 0), (2, 2)]),
        (_functions(3, 2, 3.0), [(1, 0), (2, 1)]),
        pytest.param(_functions(3, 2, 3.0), [(3, 0)], marks=pytest.mark.slow),
        (_functions(2, 3, 3.0), [(1, 0), (3, 0), (2, 1)]),
        (_field(range(3), 2.0), [(1, 0), (3, 1)]),
        (_plane((0, 1, 2, 3), 2.0), [(1, 0), (1, 2), (2, 1)]),
        pytest.param(_plane((0, 1, 2, 3), 2.0), [(3, 0)], marks=pytest.mark.slow),
        (_unary(2, 0.75, 0.25), [(1, 0), (2, 1), (4, 0), (2, 2)]),
        (_unary(2, 0.9, 0.5), [(1, 0), (2, 1), (4, 0)]),
        (_unary(3, 0.5, 0.2), [(1, 1), (3, 0)]),
        (_duchi(0.5), [(1, 0), (2, 0), (6, 0)]),
        (_duchi(2.0), [(1, 0), (4, 0)]),
        (_square_wave(2, 0), [(1, 0), (1, 1), (3, 0)]),
        (_square_wave(4, 1), [(1, 0), (1, 1), (2, 1), (3, 0)]),
        (_piecewise(2, 0), [(1, 0), (2, 0), (3, 0)]),
        (_piecewise(4, 1), [(1, 0), (2, 0), (3, 0)]),
        (_harmony(1), [(1, 0)]),
        (_harmony(2), [(1, 0), (2, 0), (3, 0)]),
        (_harmony(3), [(1, 0), (2, 0)]),
        (_mean_est(1), [(2, 0)]),
        (_mean_est(2), [(1, 0), (2, 0), (3, 0)]),
        (_mean_est(3), [(1, 0), (2, 0)]),
    ],
)
def test_bounds_and_attacks_enclose_the_exact_delta(
    instance: _Instance, anonymity_sets: list[tuple[int, int]], share: float
) -> None:
    """By every accountant that applies; exact for a single user without dummies."""
    pmfs, dummy, reduction, kind = instance
    assert isinstance(reduction, MatchCountReduction)
    epsilon = share * reduction.local_epsilon
    for users, dummies in anonymity_sets:
        anonymity_set = AnonymitySet(users=users, dummies=dummies)
        truth = true_delta(pmfs, users=users, dummies=dummies, dummy=dummy, epsilon=epsilon)
        bound = delta_upper(reduction, anonymity_set, epsilon)
        bounds = [bound, blanket_delta(match_count_pair(reduction), anonymity_set, epsilon)]
        if kind == "grr" and not dummies:
            clones = (reduction.local_epsilon, anonymity_set)
            coin = CloneRelease.with_a_coin(*clones).delta(epsilon)
            bounds += [coin, VariationRatio.of(reduction).certified_delta(anonymity_set, epsilon)]
            assert coin <= clones_of_2021(*clones).delta(epsilon)

        assert truth <= min(bounds) + _ENUMERATION_ERROR
        if users == 1 and not dummies:
            assert bound == pytest.approx(truth, rel=1e-6)
        if kind in {"grr", "plane"}:
            assert delta_lower(reduction, anonymity_set, epsilon) <= truth + _ENUMERATION_ERROR


@_SHARES
@pytest.mark.parametrize(
    ("columns", "buckets", "users"),
    [
        (((0, -1), (0, 1)), 2, 3),
        (((0,), (1,), (0,)), 2, 3),
        (((0,), (1,)), 3, 2),
        (((0,),) * 6, 2, 4),
    ],
)
def test_random_levels_are_never_below_brute_force(
    columns: Columns, buckets: int, users: int, share: float
) -> None:
    """
    Prefix hashing: every value of every user, and every level, seed and bucket, is enumerated.

    Among the values are pairs that agree at some of the levels. One user's δ is exact.
    """
    mechanism = PrefixHashing(buckets, columns, _3_TO_1)
    values = itertools.product(range(buckets), repeat=1 + max(map(max, columns)))
    pmfs = [prefix_distribution(value, columns, buckets) for value in values]
    epsilon = share * mechanism.local_epsilon
    alone, bound = (
        delta_upper(mechanism.reduction, AnonymitySet(users=number), epsilon)
        for number in (1, users)
    )
    truth = true_delta(pmfs, users=users, dummies=0, dummy={}, epsilon=epsilon)

    assert truth <= bound + _ENUMERATION_ERROR
    assert alone == pytest.approx(
        true_delta(pmfs, users=1, dummies=0, dummy={}, epsilon=epsilon), rel=1e-6
    )


@pytest.mark.parametrize(
    ("n_users", "local_epsilon", "buckets", "epsilon", "levels_shown"),
    [
        (100_000, 8.0, 2971, 0.708, 1.65),
        (602_325, 6.0, 401, 0.093, 0.264),
        (602_325, 8.0, 2971, 0.273, 0.767),
        (602_325, 10.0, 22_027, 0.788, 1.77),
        (5_000_000, 8.0, 2971, 0.088, 0.25),
    ],
)
def test_open_dictionaries_have_their_figures(
    n_users: int, local_epsilon: float, buckets: int, epsilon: float, levels_shown: float
) -> None:
    """At δ = 1e-6; were the level, of seven, shown, a seventh of the users would help to hide."""
    weights = ResponseWeights.for_epsilon(local_epsilon)
    reduction = PrefixHashing(buckets, ((0,),) * 7, weights).reduction
    found, shown = (
        epsilon_upper(reduction, AnonymitySet(users=users), 1e-6)
        for users in (n_users, n_users // 7)
    )

    assert found == pytest.approx(epsilon, rel=0.01)
    assert shown == pytest.approx(levels_shown, rel=0.02)


@pytest.mark.parametrize("local_epsilon", [2.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.7])
def test_random_dummies_are_never_below_brute_force(local_epsilon: float, epsilon: float) -> None:
    """Up to four dummies; almost exact if there is almost no local noise."""
    pmfs, dummy, reduction, _ = _grr(3, local_epsilon)
    pmf = {number: float(stats.binom.pmf(number, 4, 0.4)) for number in range(5)}
    truth = true_delta(pmfs, users=2, dummies=pmf, dummy=dummy, epsilon=epsilon)
    assert isinstance(reduction, MatchCountReduction)
    anonymity_set = AnonymitySet(users=2, random_dummies=Binomial(4, 0.4))
    bound = delta_upper(reduction, anonymity_set, epsilon)

    assert truth <= bound + _ENUMERATION_ERROR
    if local_epsilon == 30:
        assert bound <= 1.001 * truth


def test_without_seed_0_the_bound_for_independent_hashes_is_false() -> None:
    """The counterexample: true δ .2051 against a bound of .1204; one histogram still holds."""
    pmfs, dummy, reduction, _ = _field(range(1, 3), 2.0)
    truth = true_delta(pmfs, users=3, dummies=1, dummy=dummy, epsilon=1.0)
    anonymity_set = AnonymitySet(users=3, dummies=1)
    assert isinstance(reduction, MatchCountReduction)

    assert truth == pytest.approx(0.2051, abs=1e-4)
    assert delta_upper(reduction, anonymity_set, 1.0) == pytest.approx(0.1204, abs=1e-4)
    assert truth <= delta_upper(of_grr(3, 2.0), anonymity_set, 1.0)
