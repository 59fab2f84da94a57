"""Exact distributions of Duchi's bit, the piecewise mechanism and the hybrid, over every draw."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.numeric.coded_number import CodedNumber, Duchi
from common.mechanisms.numeric.number import FRACTION_BITS, rounding_variance, to_grid, to_unit
from common.mechanisms.numeric.piecewise import (
    HYBRID_THRESHOLD,
    Hybrid,
    Piecewise,
    paper_reach,
    paper_weight,
)
from common.mechanisms.reduction import MatchCountReduction, PureReduction
from common.mechanisms.weights import ResponseWeights
from common.task.specs import MIX_SUM
from tests.support.mechanisms import Scripted
from tests.support.numbers import Distribution, distribution_of, spec_for, worst_ratio

_3_TO_1 = ResponseWeights(true=3, other=1)
_OFTEN = MIX_SUM // 4 * 3
"""Weight of the piecewise mechanism that selects it three times out of four."""
_GRIDS = pytest.mark.parametrize(("steps", "reach"), [(2, 0), (4, 0), (4, 1), (6, 2), (4, 3)])


def _points(steps: int) -> list[float]:
    return [2 * point / steps - 1 for point in range(steps + 1)]


def _duchi_distribution(end: float) -> Distribution:
    """Enumerate the four draws of randomized response; an end of the range is not rounded."""
    numbers = np.full(4, end)
    return distribution_of(Duchi(_3_TO_1).encode(numbers, Scripted(np.zeros(4), np.arange(4))))


def _piecewise_distribution(mechanism: Piecewise, point: float) -> Distribution:
    """Enumerate all draws of the response; a point of the grid is not rounded."""
    total = mechanism.response.total
    rng = Scripted(np.zeros(total), np.arange(total))
    return distribution_of(mechanism.encode(np.full(total, point), rng))


def _hybrid_distribution(mechanism: Hybrid, point: float) -> Distribution:
    """Mix the distributions of the two parts; the draw of the part is tested below."""
    piecewise = Piecewise(mechanism.steps, mechanism.reach, mechanism.weights)
    often = Fraction(mechanism.piecewise_weight, MIX_SUM)
    up = Fraction(1, 2) + Fraction(point) * Fraction(3 - 1, 2 * (3 + 1))
    places = _piecewise_distribution(piecewise, point)
    bits = {0: (1 - often) * (1 - up), 1: (1 - often) * up}
    return bits | {2 + place: often * places[place] for place in places}


def _stands(mechanism: CodedNumber, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number that each code represents."""
    _, stands, _ = mechanism.totals(mechanism.parts(codes).T)
    return np.asarray(stands, dtype=np.float64)


def _moments(mechanism: CodedNumber, distribution: Distribution) -> tuple[float, float]:
    stands = _stands(mechanism, np.array(list(distribution)))
    probabilities = np.array([float(probability) for probability in distribution.values()])
    return float(probabilities @ stands), float(probabilities @ stands**2)


def test_a_bit_is_exact_unbiased_and_varies_as_predicted() -> None:
    """Three of four draws are truthful, and ±C has an end as its mean, C = (3+1)/(3-1)."""
    for end, truth in ((-1.0, 0), (1.0, 1)):
        distribution = _duchi_distribution(end)
        assert {truth: Fraction(3, 4), 1 - truth: Fraction(1, 4)} == distribution
        mean, square = _moments(Duchi(_3_TO_1), distribution)
        assert (end, 4) == pytest.approx((mean, square), abs=1e-14)
        assert Duchi(_3_TO_1).spread.second_moment(np.array([end]))[0] == 4


@_GRIDS
def test_a_place_has_exactly_its_weight(steps: int, reach: int) -> None:
    """Places in the band of a grid point have weight `true`, and all others `other`."""
    mechanism = Piecewise(steps, reach, _3_TO_1)
    distributions = [_piecewise_distribution(mechanism, point) for point in _points(steps)]
    for point, distribution in enumerate(distributions):
        expected = {
            place: Fraction(3 if point <= place <= point + 2 * reach else 1)
            for place in range(steps + 1 + 2 * reach)
        }
        total = sum(expected.values())
        assert {place: weight / total for place, weight in expected.items()} == distribution
    assert worst_ratio(distributions) == 3


@_GRIDS
def test_a_hybrid_estimates_without_bias_and_varies_as_predicted(steps: int, reach: int) -> None:
    """The parts have disjoint codes, and the odds of the mixture are 3, like those of its parts."""
    mechanism = Hybrid(steps, reach, _3_TO_1, _OFTEN)
    distributions = [_hybrid_distribution(mechanism, point) for point in _points(steps)]

    assert worst_ratio(distributions) == 3
    for point, distribution in zip(_points(steps), distributions, strict=True):
        assert sum(distribution.values()) == 1
        assert set(distribution) == set(range(mechanism.answers))
        mean, square = _moments(mechanism, distribution)
        assert point == pytest.approx(mean, abs=1e-12)
        expected = mechanism.spread.second_moment(np.array([point]))[0]
        assert expected == pytest.approx(square, rel=1e-12)


def test_a_hybrid_answers_by_the_part_that_was_drawn() -> None:
    """A draw below its weight selects the piecewise mechanism, whose codes begin at 2."""
    mechanism = Hybrid(4, 1, _3_TO_1, _OFTEN)
    branch = [0, _OFTEN - 1, _OFTEN, MIX_SUM - 1]
    # Rounding of the first two and their draw below 13, rounding of the others and their response.
    rng = Scripted(branch, [0, 0], [0, 12], [0, 0], [2, 3])
    codes = mechanism.encode(np.full(4, 1.0), rng)

    assert [2 + 4, 2 + 3, 1, 0] == codes.tolist()


@pytest.mark.parametrize("reach", [0, 7, 2048])
def test_a_billion_reports_can_be_added_up(reach: int) -> None:
    """Sums of 10^9 reports of the last place fit 64 bits."""
    mechanism = Piecewise(4096, reach, _3_TO_1)
    last = mechanism.answers - 1
    cells = np.array([10**9, last * 10**9, last**2 * 10**9], dtype=np.int64)
    stands = _stands(mechanism, np.array([last]))[0]

    assert stands == pytest.approx(mechanism.estimate(cells).means[0], rel=1e-12)
    assert 1e9 * stands**2 == pytest.approx(mechanism.totals(cells[np.newaxis])[2][0])


@pytest.mark.parametrize("steps", [1, 2, 4, 4096])
def test_numbers_are_rounded_up_with_their_relative_position(steps: int) -> None:
    """The least draw that rounds down is the fraction of 2^32."""
    numbers = np.array([-1.0, -0.7, 0.0, 0.123456789, 0.999, 1.0])
    place = (numbers + 1) * steps / 2
    odds = np.rint((place - np.floor(place)) * 2**FRACTION_BITS)
    just_up = to_grid(numbers, steps, Scripted(np.maximum(odds - 1, 0)))
    just_down = to_grid(numbers, steps, Scripted(np.minimum(odds, 2**FRACTION_BITS - 1)))

    assert np.ceil(place).tolist() == just_up.tolist()
    assert np.floor(place).tolist() == just_down.tolist()


@pytest.mark.parametrize("steps", [2, 4, 4096])
def test_rounding_has_its_variance(steps: int) -> None:
    """The variance is f(1-f) times a step's square, at most 1/steps²."""
    numbers = np.linspace(-1, 1, 1001)[:, np.newaxis]
    place = (numbers + 1) * steps / 2
    low, high = (2 / steps * end(place) - 1 for end in (np.floor, np.ceil))
    found = rounding_variance(numbers, steps)

    np.testing.assert_allclose(found, (numbers - low) * (high - numbers), atol=1e-12)
    assert found.max() <= steps**-2 * (1 + 1e-9)


def test_a_range_maps_to_minus_1_to_1() -> None:
    """Ends map to ends in spite of rounding."""
    assert [-1.0, -0.5, 1.0] == to_unit(np.array([10.0, 12.5, 20.0]), 10.0, 20.0).tolist()
    for low, high in [(0.1, 0.3), (-1e12, 1e-3), (1 / 3, 1e9 / 7)]:
        ends = to_unit(np.array([low, high]), low, high)
        assert [-1.0, 1.0] == ends.tolist()


def test_the_hybrid_has_the_threshold_of_the_paper() -> None:
    """At ε* ≈ .61 the worst variances of the two parts are equal."""
    assert 0.61 == pytest.approx(HYBRID_THRESHOLD, abs=1e-3)
    duchi = 1 / math.tanh(HYBRID_THRESHOLD / 2) ** 2
    root = math.exp(HYBRID_THRESHOLD / 2)
    hybrid = (root + 3) / (3 * root * (root - 1)) + duchi / root
    assert duchi == pytest.approx(hybrid, rel=1e-9)


def test_up_to_the_threshold_a_hybrid_is_duchis_bit() -> None:
    """It has no grid, two codes in one byte, and Duchi's reduction and variance."""
    mechanism = Hybrid.for_epsilon(1, 0.5)

    assert 0 == paper_weight(HYBRID_THRESHOLD)
    assert 0 < paper_weight(math.nextafter(HYBRID_THRESHOLD, 1))
    assert 2 == mechanism.answers
    assert 1 == mechanism.report_dtype.itemsize
    assert Duchi(mechanism.weights).reduction == mechanism.reduction
    value = np.array([[0.25]])
    assert Duchi(mechanism.weights).variance(value) == mechanism.variance(value)


def test_invalid_parameters_are_refused() -> None:
    """Each mechanism has a single form, and sums for 10^9 people fit 64 bits."""
    for steps, reach, weight, message in (
        (4, 0, 0, "if piecewise_weight is 0"),
        (0, 1, 0, "if piecewise_weight is 0"),
        (0, 0, 5, "even number"),
        (3, 0, 5, "even number"),
        (-2, 0, 5, "even number"),
        (1, 0, 5, "even number"),
    ):
        with pytest.raises(TaskError, match=message):
            Hybrid(steps, reach, _3_TO_1, weight)
    for weight in (-1, MIX_SUM):
        with pytest.raises(TaskError, match="must lie between 0 and 4294967295"):
            dataclasses.replace(spec_for("hybrid"), piecewise_weight=weight)
    with pytest.raises(TaskError, match="2\\^63"):
        Piecewise(4096, 10, ResponseWeights(true=2**60, other=2**59))
    Piecewise(2**16, 0, _3_TO_1)
    with pytest.raises(TaskError, match="there are 131073 places; there must be at most 96038"):
        Piecewise(2**17, 0, _3_TO_1)


@pytest.mark.parametrize(
    ("local_epsilon", "reach"), [(1e-6, 2047), (1.0, 1242), (4.0, 277), (20.0, 0)]
)
def test_the_band_has_the_width_of_the_paper(local_epsilon: float, reach: int) -> None:
    """The width is 4096·e^(-ε/2), rounded to the nearest odd number."""
    width = 4096 * math.exp(-local_epsilon / 2)

    assert reach == paper_reach(4096, local_epsilon)
    assert abs(2 * reach + 1 - width) <= 1


def test_a_place_has_the_reduction_of_its_response() -> None:
    """It has γ = D·other/W and l = D/w; if the bands of the ends overlap, only the local ε."""
    reduction = Piecewise(6, 2, _3_TO_1).reduction
    assert isinstance(reduction, MatchCountReduction)
    assert 11 / (5 * 3 + 6) == pytest.approx(reduction.blanket, rel=1e-15)
    assert 11 / 5 == pytest.approx(reduction.answers, rel=1e-15)
    assert 0 == reduction.collision

    overlapping = Piecewise(6, 3, _3_TO_1).reduction
    assert isinstance(overlapping, PureReduction)
    assert math.log(3) == pytest.approx(overlapping.local_epsilon)
