import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shuffledp.deploy.pages import figures
from tests.support.tables import table


@table(
    ("write", "epsilon", "shown"),
    [
        (figures.format_privacy, 0.0, "0"),
        (figures.format_privacy, 0.108_169_5, "0.1082"),
        (figures.format_privacy, 4.0, "4"),
        (figures.format_privacy, 1e-6, "10⁻⁶"),
        (figures.format_privacy, 1.23e-7, "1.23\u00a0×\u00a010⁻⁷"),
        (figures.format_privacy, math.inf, "no guarantee"),
        (figures.format_lower_bound, 0.0, "0"),
        (figures.format_lower_bound, 0.108_199, "0.1081"),
        (figures.format_lower_bound, 4.0, "4"),
        (figures.format_lower_bound, 1.2399e-7, "1.239\u00a0×\u00a010⁻⁷"),
        (figures.format_lower_bound, math.inf, "∞"),
        # e⁴ is 54.598, e⁸ 2980.96, e¹⁰ 22026.5, e³⁰·¹ 1.18e13 and e⁷⁰⁰ 1.01e304.
        (figures.format_odds, 0.0, "1"),
        (figures.format_odds, 0.108_169_5, "1.115"),
        (figures.format_odds, 4.0, "54.6"),
        (figures.format_odds, 8.0, "2,981"),
        (figures.format_odds, 10.0, "2.203\u00a0×\u00a010⁴"),
        (figures.format_odds, 30.1, "10¹⁴"),
        (figures.format_odds, 700.0, "10³⁰⁵"),
        (figures.format_probability, 1e-6, "0.000001"),
        (figures.format_probability, 1.234_51e-7, "0.0000001235"),
        (figures.format_probability, 1e-12, "10⁻¹²"),
        (figures.format_probability, 0.0, "0"),
    ],
)
def test_a_privacy_figure_is_rounded_up_and_an_attackers_gain_down(
    write: Callable[[float], str], epsilon: float, shown: str
) -> None:
    """Figures are typeset; infinity has words."""
    assert shown == write(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "shown"),
    [
        (0.0, 0.0, "50"),
        (0.0, 0.1, "55.0"),
        (0.108_169_5, 0.0, "52.8"),
        (4.0, 0.0, "98.3"),
        (4.0, 0.5, "99.11"),
        (8.0, 0.0, "99.967"),
        (1.0, 1.0, "100"),
    ],
)
def test_certainty_starts_from_even_odds_and_counts_delta(
    epsilon: float, delta: float, shown: str
) -> None:
    """(e^ε + δ) / (1 + e^ε), rounded up: .55, .5270, .9820, .99101, .99966."""
    assert f"{shown}\N{NO-BREAK SPACE}%" == figures.format_certainty(epsilon, delta)


@given(st.floats(1e-9, 12), st.sampled_from([0.0, 1e-12, 1e-6, 0.1]))
@example(1.098_612_288_668_109_8, 0.0)
def test_certainty_is_never_below_the_exact_one(epsilon: float, delta: float) -> None:
    """The last digit holds too: e^ε is slightly above 3 for the ε of the example."""
    with localcontext(prec=60):
        power = Decimal(repr(epsilon)).exp()
        exact = 100 * (power + Decimal(repr(delta))) / (1 + power)
        shown = figures.format_certainty(epsilon, delta).removesuffix("\N{NO-BREAK SPACE}%")
        assert Decimal(shown) >= exact


@pytest.mark.parametrize("epsilon", [12.0, 20.0, 1000.0])
def test_a_finite_epsilon_never_shows_certainty(epsilon: float) -> None:
    """This holds however large it is."""
    assert not figures.format_certainty(epsilon, 1e-6).startswith("100")
