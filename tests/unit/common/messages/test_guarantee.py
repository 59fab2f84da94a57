import math
from fractions import Fraction

import pytest
from hypothesis import given
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
    """Four digits, rounded up."""
    assert shown == rounded_up(figure)


@pytest.mark.parametrize(
    ("figures", "summed"),
    [
        ([], 0.0),
        ([0.1] * 10, 1.0),
        ([0.1, 0.2], 0.3),
        ([1.0, 1e-20], math.nextafter(1.0, 2.0)),
        ([1.0, 2.0**-53], math.nextafter(1.0, 2.0)),
        ([4.0, math.inf, 1.0], math.inf),
    ],
)
def test_a_sum_of_privacy_figures_is_never_below_the_exact_one(
    figures: list[float], summed: float
) -> None:
    """Of the decimals that they are written as; floats are rounded to the nearest."""
    assert summed == sum_upper(figures)


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=8))
def test_a_sum_is_the_least_float_that_is_not_below(figures: list[float]) -> None:
    """Whatever is added."""
    exact = sum((Fraction(repr(figure)) for figure in figures), Fraction(0))
    found = sum_upper(figures)

    assert Fraction(repr(math.nextafter(found, -1.0))) < exact or found == 0.0
    assert exact <= Fraction(repr(found))
