"""MeanEST: exact distributions over all corners of small cubes."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from common.mechanisms.numeric.mean_est import MeanEst
from common.mechanisms.weights import ResponseWeights
from tests.support.mechanisms import Scripted

_3_TO_1 = ResponseWeights(true=3, other=1)
_CUBES = pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5, 6])

Corner = tuple[int, ...]


def _corners(dimensions: int) -> list[Corner]:
    return list(itertools.product((-1, 1), repeat=dimensions))


def _product(one: Corner, other: Corner) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _bits(corners: list[Corner]) -> NDArray[np.uint8]:
    rows = np.packbits(np.array(corners) > 0, axis=1, bitorder="little")
    return np.pad(rows, ((0, 0), (0, len(corners[0]) // 8 + 1 - rows.shape[1])))


def _distribution(dimensions: int, own: Corner) -> dict[Corner, Fraction]:
    """
    Return the distribution of a report of one corner, over every draw of one round.

    At odds of 3 every probability is a multiple of a quarter, so one 16-bit word stands for each
    quarter.
    """
    mechanism, corners = MeanEst(dimensions, _3_TO_1), _corners(dimensions)
    held = np.repeat(_bits([own]), len(corners), axis=0)
    ties = sum(_product(own, corner) == 0 for corner in corners)
    distribution = dict.fromkeys(corners, Fraction(0))
    by_bits = {row.tobytes(): corner for row, corner in zip(_bits(corners), corners, strict=True)}
    quarters = [quarter << 14 for quarter in range(4)]
    for truth, staying in itertools.product(quarters, repeat=2):
        side, stay = np.full(len(corners), truth), np.full(ties, staying)
        drawn, again = mechanism._draw(held, Scripted(_bits(corners), side, stay))
        for row, corner in enumerate(drawn):
            if row not in again.tolist():
                distribution[by_bits[corner.tobytes()]] += 1
    total = sum(distribution.values())
    return {corner: weight / total for corner, weight in distribution.items()}


@_CUBES
def test_a_corner_has_exactly_its_weight(dimensions: int) -> None:
    """Corners on its side have weight `true`, others and ties `other`; the mean is unbiased."""
    scale = MeanEst(dimensions, _3_TO_1).scale
    for own in _corners(dimensions):
        distribution = _distribution(dimensions, own)
        weights = {z: Fraction(3 if _product(own, z) > 0 else 1) for z in distribution}
        total = sum(weights.values())
        assert {z: weight / total for z, weight in weights.items()} == distribution
        means = [sum(distribution[z] * z[j] for z in distribution) for j in range(dimensions)]
        assert list(own) == pytest.approx([scale * float(mean) for mean in means], rel=1e-12)


@_CUBES
def test_the_reduction_describes_the_distribution(dimensions: int) -> None:
    """The distribution is γU + (1-γ)U(· | z·V > 0), with the γ and the l of the reduction."""
    reduction = MeanEst(dimensions, _3_TO_1).reduction
    for own in _corners(dimensions):
        distribution = _distribution(dimensions, own)
        side = [z for z in distribution if _product(own, z) > 0]
        for z, probability in distribution.items():
            near = 1 / len(side) if z in side else 0
            expected = reduction.blanket / len(distribution) + reduction.signal * near
            assert expected == pytest.approx(float(probability), rel=1e-12)
        assert len(distribution) / len(side) == pytest.approx(reduction.answers, rel=1e-15)
    assert 0 == reduction.collision


def test_ties_are_drawn_until_one_stays() -> None:
    """A tie is drawn again, and the other reports stay in their places."""
    mechanism = MeanEst(2, _3_TO_1)
    rounds = [
        np.zeros((2, 2)),  # rounding to the corners (+, +) and (-, -)
        [[0b01], [0b00]],  # a tie, and the second person's own corner
        [0, 0],  # the truth about both sides
        [2**16 - 1],  # the tie does not stay
        [[0b11]],  # the first person's own corner
        [0],
        np.empty(0),
    ]
    reports = mechanism.randomize(np.array([[1.0, 1.0], [-1.0, -1.0]]), Scripted(*rounds))

    assert [[0b11], [0b00]] == reports["bits"].tolist()
