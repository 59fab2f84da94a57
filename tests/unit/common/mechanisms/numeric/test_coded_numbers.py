"""Grids, bands and mixtures of Duchi's bit, the piecewise mechanism and the hybrid."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.numeric import piecewise
from shuffledp.common.mechanisms.numeric.coded_number import CodedNumber, Duchi
from shuffledp.common.mechanisms.numeric.number import FRACTION_BITS, to_grid, to_unit
from shuffledp.common.mechanisms.reduction import PureReduction
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.specs import MIX_SUM
from tests.support.mechanisms import Scripted
from tests.support.numbers import spec_for

_3_TO_1 = ResponseWeights(true=3, other=1)


def _stands(mechanism: CodedNumber, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number that each code represents."""
    _, stands, _ = mechanism.totals(mechanism.parts(codes).T)
    return np.asarray(stands, dtype=np.float64)


@pytest.mark.parametrize("reach", [0, 7, 2048])
def test_a_billion_reports_can_be_added_up(reach: int) -> None:
    """Sums of 10^9 reports of the last place fit 64 bits."""
    mechanism = piecewise.Piecewise(4096, reach, _3_TO_1)
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


def test_a_range_maps_to_minus_1_to_1() -> None:
    """Ends map to ends in spite of rounding."""
    assert [-1.0, -0.5, 1.0] == to_unit(np.array([10.0, 12.5, 20.0]), 10.0, 20.0).tolist()
    for low, high in [(0.1, 0.3), (-1e12, 1e-3), (1 / 3, 1e9 / 7)]:
        ends = to_unit(np.array([low, high]), low, high)
        assert [-1.0, 1.0] == ends.tolist()


def test_the_hybrid_has_the_threshold_of_the_paper() -> None:
    """At ε* ≈ .61 the worst variances of the two parts are equal."""
    assert 0.61 == pytest.approx(piecewise.HYBRID_THRESHOLD, abs=1e-3)
    duchi = 1 / math.tanh(piecewise.HYBRID_THRESHOLD / 2) ** 2
    root = math.exp(piecewise.HYBRID_THRESHOLD / 2)
    hybrid = (root + 3) / (3 * root * (root - 1)) + duchi / root
    assert duchi == pytest.approx(hybrid, rel=1e-9)


def test_up_to_the_threshold_a_hybrid_is_duchis_bit() -> None:
    """It has no grid, two codes in one byte, and Duchi's reduction and variance."""
    mechanism = piecewise.Hybrid.for_epsilon(1, 0.5)

    assert 0 == piecewise.paper_weight(piecewise.HYBRID_THRESHOLD)
    assert 0 < piecewise.paper_weight(math.nextafter(piecewise.HYBRID_THRESHOLD, 1))
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
            piecewise.Hybrid(steps, reach, _3_TO_1, weight)
    for weight in (-1, MIX_SUM):
        with pytest.raises(TaskError, match="must lie between 0 and 4294967295"):
            dataclasses.replace(spec_for("hybrid"), piecewise_weight=weight)
    with pytest.raises(TaskError, match="2\\^63"):
        piecewise.Piecewise(4096, 10, ResponseWeights(true=2**60, other=2**59))
    piecewise.Piecewise(2**16, 0, _3_TO_1)
    with pytest.raises(TaskError, match="there are 131073 places; there must be at most 96038"):
        piecewise.Piecewise(2**17, 0, _3_TO_1)


@pytest.mark.parametrize(
    ("local_epsilon", "reach"), [(1e-6, 2047), (1.0, 1242), (4.0, 277), (20.0, 0)]
)
def test_the_band_has_the_width_of_the_paper(local_epsilon: float, reach: int) -> None:
    """The width is 4096·e^(-ε/2), rounded to the nearest odd number."""
    width = 4096 * math.exp(-local_epsilon / 2)

    assert reach == piecewise.paper_reach(4096, local_epsilon)
    assert abs(2 * reach + 1 - width) <= 1


def test_overlapping_bands_have_the_local_epsilon_alone() -> None:
    """The bands of the two ends share places, so no match count describes them."""
    overlapping = piecewise.Piecewise(6, 3, _3_TO_1).reduction

    assert isinstance(overlapping, PureReduction)
    assert math.log(3) == pytest.approx(overlapping.local_epsilon)
