import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Final, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import AccountingError, ValueRangeError
from deploy.simulate.baselines.choices import (
    most_frequent,
    part_of,
    quantile,
    quantile_utilities,
    regret,
    top,
)
from deploy.simulate.baselines.selection import Method, Selection, expected_gap_bound

_METHODS: Final[tuple[Method, ...]] = get_args(Method)
_2_LN_2: Final = 2 * math.log(2)
"""At this ε a coin's chance is 2^-gap: a fraction."""


def _law(utilities: tuple[int, ...], method: Method) -> list[Fraction]:
    """Give the exact law at ε = 2·ln 2, by every outcome of all coins."""
    best = max(utilities)
    chances = [Fraction(1, 2 ** (best - each)) for each in utilities]
    if method == "exponential":
        return [each / sum(chances) for each in chances]
    law = [Fraction(0)] * len(utilities)
    for shown in product((False, True), repeat=len(utilities)):
        weight = math.prod(
            (chance if heads else 1 - chance) for chance, heads in zip(chances, shown, strict=True)
        )
        for place, heads in enumerate(shown):
            if heads:
                law[place] += Fraction(weight) / sum(shown)
    return law


def _permuted_law(utilities: tuple[int, ...]) -> list[Fraction]:
    """Give the law of permute-and-flip as it is written: one by one, without replacement."""
    best = max(utilities)
    law = [Fraction(0)] * len(utilities)

    def flip(left: tuple[int, ...], reached: Fraction) -> None:
        for place in left:
            chance = Fraction(1, 2 ** (best - utilities[place]))
            law[place] += reached / len(left) * chance
            if chance < 1:
                rest = tuple(each for each in left if each != place)
                flip(rest, reached / len(left) * (1 - chance))

    flip(tuple(range(len(utilities))), Fraction(1))
    return law


def _neighbours(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Replace one person."""
    for loser, winner in product(range(len(counts)), repeat=2):
        if counts[loser] and loser != winner:
            changed = list(counts)
            changed[loser] -= 1
            changed[winner] += 1
            yield tuple(changed)


def _histograms(people: int, items: int) -> Iterator[tuple[int, ...]]:
    for chosen in combinations_with_replacement(range(items), people):
        yield tuple(chosen.count(item) for item in range(items))


# --- privacy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize(("people", "items"), [(1, 2), (4, 2), (3, 3), (5, 3), (2, 4), (4, 4)])
def test_replacing_one_person_changes_no_chance_by_more_than_the_promise(
    people: int, items: int, method: Method
) -> None:
    """Every histogram of so many people and each of its neighbours, in fractions: at most e^ε=4."""
    worst = Fraction(1)
    for counts in _histograms(people, items):
        here = _law(counts, method)
        for other in _neighbours(counts):
            there = _law(other, method)
            worst = max(worst, *(one / two for one, two in zip(here, there, strict=True)))

    assert 1 < worst <= 4


@pytest.mark.parametrize("utilities", list(product(range(4), repeat=3)), ids=str)
def test_tossing_all_coins_at_once_is_permuting_and_flipping(utilities: tuple[int, ...]) -> None:
    """The same law, as fractions."""
    assert _permuted_law(utilities) == _law(utilities, "permute-and-flip")


@pytest.mark.parametrize("points", [3, 4])
@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 2), Fraction(2, 3), Fraction(1)])
def test_one_person_moves_a_quantiles_utilities_by_one(points: int, share: Fraction) -> None:
    """Every four people on a small grid, and one of them replaced by anybody."""
    grid = [2 * point / (points - 1) - 1 for point in range(points)]
    for people in combinations_with_replacement(grid, 4):
        here = quantile_utilities(np.array(people), share, points)
        for replaced in grid:
            there = quantile_utilities(np.array([replaced, *people[1:]]), share, points)
            assert np.abs(here - there).max() <= 1


@given(st.floats(1e-8, 1000.0))
def test_epsilon_is_rounded_down(epsilon: float) -> None:
    """A unit of utility costs half of it at most, in whole units of 2^-30."""
    half = Fraction(Selection(epsilon)._half, 2**30)

    assert half <= Fraction(epsilon) / 2 < half + Fraction(1, 2**30)


# --- laws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize(
    "utilities", [(0,), (5, 5), (0, 1), (3, 0, 1), (2, 2, 2, 1), (0, 9, 1, 8, 0, 9), (7, -3, 0)]
)
def test_the_law_is_that_of_every_outcome_of_the_coins(
    utilities: tuple[int, ...], method: Method
) -> None:
    """Up to ε's own rounding."""
    found = Selection(_2_LN_2, method).law(np.array(utilities))
    exact = [float(each) for each in _law(utilities, method)]

    np.testing.assert_allclose(found, exact, rtol=1e-7)
    assert 1 == pytest.approx(found.sum(), abs=1e-12)


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 1000.0])
def test_laws_of_many_candidates_add_to_one(epsilon: float, method: Method) -> None:
    """A hundred thousand of all kinds; of hopeless ones nothing overflows."""
    rng = np.random.default_rng(1)
    utilities = np.concatenate([rng.geometric(1e-3, 100_000), [-(10**15), 20_000]])
    law = Selection(epsilon, method).law(utilities)

    assert 1 == pytest.approx(law.sum(), abs=1e-9)
    assert (law >= 0).all()
    assert law.max() == law[utilities.argmax()]


@given(st.lists(st.integers(0, 60), min_size=2, max_size=12), st.floats(0.01, 5.0))
def test_permute_and_flip_never_regrets_more(utilities: list[int], epsilon: float) -> None:
    """Than the exponential mechanism, and neither more than the bound of both."""
    values = np.array(utilities)
    flip = Selection(epsilon).expected_gap(values)
    exponential = Selection(epsilon, "exponential").expected_gap(values)

    assert flip <= exponential + 1e-9
    assert exponential <= expected_gap_bound(epsilon, len(utilities)) + 1e-6


def test_regret_is_in_shares() -> None:
    """By hand: of two items the worse one, by 1 of 3 people, shows heads in 1/2, is one of two."""
    assert 1 / 12 == pytest.approx(regret(np.array([1, 2]), _2_LN_2))
    assert 1 / 9 == pytest.approx(regret(np.array([1, 2]), _2_LN_2, "exponential"))


# --- choices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", _METHODS)
def test_with_next_to_no_noise_the_best_is_chosen(method: Method) -> None:
    """However far the others are behind, or how near."""
    rng = np.random.default_rng(2)
    counts = np.array([10**12, 10**12 + 1, 0, -(10**12)])

    assert {1} == {most_frequent(counts, 1000.0, rng, method) for _ in range(20)}


def test_several_are_chosen_without_replacement() -> None:
    """The best first where there is next to no noise, and all of them if asked for."""
    rng = np.random.default_rng(3)
    counts = np.array([5, 900, 300, 40])

    assert [1, 2, 3] == top(counts, 3, 1000.0, rng)
    assert {0, 1, 2, 3} == set(top(counts, 4, 0.1, rng))


@given(st.floats(1e-6, 100.0), st.integers(1, 1000))
def test_the_parts_of_several_choices_cost_no_more_than_the_whole(epsilon: float, k: int) -> None:
    """As fractions, and next to nothing less."""
    spent = k * Fraction(part_of(epsilon, k))

    assert Fraction(epsilon) * (1 - Fraction(1, 2**50)) <= spent <= Fraction(epsilon)


@pytest.mark.parametrize(
    ("share", "point"),
    [(Fraction(0), -1.0), (Fraction(1, 2), 0.0), (Fraction(3, 4), 0.5), (Fraction(1), 1.0)],
)
def test_with_next_to_no_noise_a_quantile_is_the_true_one(share: Fraction, point: float) -> None:
    """Of people spread evenly over five points; seed 4, and another point comes once in e^1000."""
    values = np.repeat([-1.0, -0.5, 0.0, 0.5, 1.0], 1000)
    found = quantile(values, share, 1000.0, np.random.default_rng(4), points=5)

    assert found == point


def test_utilities_of_a_quantile_by_hand() -> None:
    """Ten people: 2, 5 and 3 at three points; the median lacks nobody at the second."""
    values = np.repeat([-1.0, 0.0, 1.0], [2, 5, 3])

    assert [-3, 0, -2] == quantile_utilities(values, Fraction(1, 2), 3).tolist()
    assert [0, -2, -7] == quantile_utilities(values, Fraction(0), 3).tolist()
    assert [-8, -3, 0] == quantile_utilities(values, Fraction(1), 3).tolist()


def test_what_cannot_be_chosen_from_is_refused() -> None:
    """By the figure that breaks a rule, and by no value."""
    rng = np.random.default_rng(5)
    with pytest.raises(ValueRangeError, match="nothing to choose from"):
        Selection(1.0).choose(np.array([], dtype=np.int64), rng)
    with pytest.raises(AccountingError, match="3 items of 2"):
        top(np.array([1, 2]), 3, 1.0, rng)
    for epsilon in (0.0, 1e-9, 1001.0, math.nan):
        with pytest.raises(AccountingError, match="epsilon is"):
            Selection(epsilon)
    with pytest.raises(AccountingError, match="the share is 3/2"):
        quantile(np.zeros(3), Fraction(3, 2), 1.0, rng)
    with pytest.raises(AccountingError, match="the grid has 1 points"):
        quantile(np.zeros(3), Fraction(1, 2), 1.0, rng, points=1)
    for values in ([], [1.25], [math.nan]):
        with pytest.raises(ValueRangeError, match="must lie in the range") as refused:
            quantile(np.array(values), Fraction(1, 2), 1.0, rng)
        assert "1.25" not in str(refused.value)


@pytest.mark.parametrize("method", _METHODS)
def test_a_choice_says_what_it_promises(method: Method) -> None:
    """ε, no δ, and whose mechanism it is."""
    found = Selection(0.5, method).guarantee

    assert (0.5, 0.0) == (found.epsilon, found.delta)
    assert "[MT07]" in found.theorem or "[MS20]" in found.theorem
