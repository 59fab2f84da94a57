"""Reductions of mechanisms for numbers, against every data set of tiny instances."""

import itertools
import math
from fractions import Fraction

import pytest

from common.accounting.amplification import delta_upper
from common.accounting.anonymity_set import AnonymitySet
from common.mechanisms.numeric.coordinate_sampling import Harmony
from common.mechanisms.numeric.duchi import Duchi
from common.mechanisms.numeric.mean_est import MeanEst
from common.mechanisms.numeric.piecewise import Piecewise
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.weights import ResponseWeights
from tests.support.exhaustive_delta import Law, true_delta

_3_TO_1 = ResponseWeights(true=3, other=1)
_SHARES = pytest.mark.parametrize("share", [0.1, 0.4, 0.8])

Point = tuple[Fraction, ...]
Exact = dict[tuple[int, ...], Fraction]

_HALF = Fraction(1, 2)
_INSIDE: dict[int, list[Point]] = {
    1: [(Fraction(1, 3),)],
    2: [(Fraction(0), Fraction(1)), (Fraction(1, 3), Fraction(-1, 4))],
    3: [(Fraction(1, 3), Fraction(-1), Fraction(0))],
}
"""Some points of the cube that are not corners."""


def _corners(dimensions: int) -> list[Point]:
    signs = (Fraction(-1), Fraction(1))
    return [tuple(corner) for corner in itertools.product(signs, repeat=dimensions)]


def _harmony(point: Point) -> Exact:
    """Return the distribution of (coordinate, bit): Duchi's Pr[+] = 1/2 + t/4 at odds of 3."""
    up = {coordinate: _HALF + t / 4 for coordinate, t in enumerate(point)}
    one = Fraction(1, len(point))
    return {
        (coordinate, bit): one * (chance if bit else 1 - chance)
        for coordinate, chance in up.items()
        for bit in (0, 1)
    }


def _mean_est(point: Point) -> Exact:
    """Return the distribution of a corner, mixed over the corners to which a point is rounded."""
    corners = _corners(len(point))
    law = {tuple(map(int, corner)): Fraction(0) for corner in corners}
    for own in corners:
        chance = math.prod((1 + t * v) / 2 for t, v in zip(point, own, strict=True))
        weights = {z: 3 if sum(a * b for a, b in zip(own, z, strict=True)) > 0 else 1 for z in law}
        total = sum(weights.values())
        for z, weight in weights.items():
            law[z] += chance * Fraction(weight, total)
    return law


def _floats(exact: list[Exact]) -> list[Law]:
    return [{report: float(chance) for report, chance in law.items()} for law in exact]


def _check(exact: list[Exact], reduction: MatchCountReduction, users: int, share: float) -> None:
    """Check that the bound is never below the truth, and exact for a single user."""
    laws = _floats(exact)
    epsilon = share * math.log(3)
    truth = true_delta(laws, users=users, dummies=0, dummy=laws[0], epsilon=epsilon)
    bound = delta_upper(reduction, AnonymitySet(users=users), epsilon)

    assert truth <= bound + 1e-15
    if users == 1:
        assert bound == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize(("dimensions", "users"), [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
@_SHARES
def test_harmony_is_never_below_brute_force(dimensions: int, users: int, share: float) -> None:
    """People at corners of the cube, on edges and inside, in every combination."""
    laws = [_harmony(point) for point in _corners(dimensions) + _INSIDE[dimensions]]
    reduction = Harmony(dimensions, 1, Duchi(_3_TO_1)).reduction
    assert isinstance(reduction, MatchCountReduction)

    _check(laws, reduction, users, share)


@pytest.mark.parametrize(("dimensions", "users"), [(1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
@_SHARES
def test_mean_est_is_never_below_brute_force(dimensions: int, users: int, share: float) -> None:
    """With even numbers of coordinates too, where corners can be ties."""
    laws = [_mean_est(point) for point in _corners(dimensions) + _INSIDE[dimensions]]

    _check(laws, MeanEst(dimensions, _3_TO_1).reduction, users, share)


@pytest.mark.parametrize(("steps", "reach"), [(2, 0), (4, 0), (4, 1)])
@pytest.mark.parametrize("users", [1, 2, 3])
@_SHARES
def test_the_piecewise_mechanism_is_never_below_brute_force(
    steps: int, reach: int, users: int, share: float
) -> None:
    """Points of the grid, and numbers between them."""
    grid: list[Exact] = []
    places = steps + 1 + 2 * reach
    for point in range(steps + 1):
        weights = [3 if point <= place <= point + 2 * reach else 1 for place in range(places)]
        grid.append({(j,): Fraction(w, sum(weights)) for j, w in enumerate(weights)})
    between: Exact = {j: (grid[0][j] * 2 + grid[1][j]) / 3 for j in grid[0]}
    reduction = Piecewise(steps, reach, _3_TO_1).reduction
    assert isinstance(reduction, MatchCountReduction)

    _check([*grid, between], reduction, users, share)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_harmony_mixes_its_blanket_with_the_support(dimensions: int) -> None:
    """R_v = γU + (1-γ)U(· | S_v), S_v half of all (coordinate, bit), exactly."""
    gamma = Fraction(2, 4)
    for corner in _corners(dimensions):
        for (coordinate, bit), chance in _harmony(corner).items():
            supported = (corner[coordinate] > 0) == bool(bit)
            everywhere = Fraction(1, 2 * dimensions)
            near = Fraction(1, dimensions) if supported else 0
            assert gamma * everywhere + (1 - gamma) * near == chance


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_every_point_is_a_mixture_of_corners(dimensions: int) -> None:
    """With products of chances over coordinates."""
    for point in _INSIDE[dimensions]:
        mixed: Exact = dict.fromkeys(_harmony(point), Fraction(0))
        for corner in _corners(dimensions):
            chance = math.prod((1 + t * v) / 2 for t, v in zip(point, corner, strict=True))
            for report, own in _harmony(corner).items():
                mixed[report] += chance * own
        assert _harmony(point) == mixed


def test_the_brute_force_notices_a_wrong_reduction() -> None:
    """With l = 3 for 2 the bound is below the truth."""
    wrong = MatchCountReduction.of_support_sets(
        answers=3.0, local_epsilon=math.log(3), blanket=0.6, signal=0.4, independent=False
    )
    laws = _floats([_mean_est(corner) for corner in _corners(3)])
    epsilon = 0.4 * math.log(3)
    truth = true_delta(laws, users=2, dummies=0, dummy=laws[0], epsilon=epsilon)

    assert truth > delta_upper(wrong, AnonymitySet(users=2), epsilon)
