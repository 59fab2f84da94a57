import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shuffledp.common.messages.guarantee import default_delta, delta_warnings, rounded_up, sum_upper


@pytest.mark.parametrize(
    ("delta", "people", "warned"),
    [
        (0.5, 3, True),
        (0.1, 100, True),
        (1e-3, 1000, True),
        (0.99e-3, 1000, False),
        (0.5, 1, False),
        (0.0, 10**9, False),
    ],
)
def test_a_delta_that_meets_one_over_the_people_is_warned_of(
    delta: float, people: int, *, warned: bool
) -> None:
    """Publishing the value of one of n people at random has δ = 1/n."""
    warnings = delta_warnings(delta, people)

    assert warned == bool(warnings)
    assert all("allows publishing one of these people in the clear" in each for each in warnings)


def test_the_default_delta_warns_of_nothing() -> None:
    """It is the lesser of 1e-6 and a tenth of 1 / people."""
    assert [1e-6, 1e-6, 1e-8] == [default_delta(people) for people in (1, 100_000, 10_000_000)]
    assert () == delta_warnings(default_delta(10**9), 10**9)


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (0.10816114, "0.1082"),
        (0.17300001, "0.1731"),
        (4.0, "4"),
        (1e-6, "1e-06"),
        (0.0, "0"),
        (math.inf, "inf"),
    ],
)
def test_a_privacy_figure_is_shown_no_smaller_than_it_is(figure: float, shown: str) -> None:
    """A figure has four digits, rounded up."""
    assert math.inf == sum_upper([4.0, math.inf, 1.0])
    assert shown == rounded_up(figure)


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=8))
@example([0.1] * 10)
@example([1.0, 2.0**-53])
def test_a_sum_is_the_least_float_that_is_not_below(figures: list[float]) -> None:
    """The exact sum is that of the figures' shortest decimals."""
    exact = sum((Fraction(repr(figure)) for figure in figures), Fraction(0))
    found = sum_upper(figures)

    assert Fraction(repr(math.nextafter(found, -1.0))) < exact or found == 0.0
    assert exact <= Fraction(repr(found))
