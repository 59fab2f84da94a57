import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.messages.guarantee import rounded_up, sum_upper


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
