import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deploy.pages import figures


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (0.0, "0"),
        (0.108_169_5, "0.1082"),
        (4.0, "4"),
        (1e-6, "10⁻⁶"),
        (1.23e-7, "1.23\u00a0×\u00a010⁻⁷"),
        (math.inf, "no guarantee"),
    ],
)
def test_a_privacy_figure_is_rounded_up_and_typeset(epsilon: float, shown: str) -> None:
    """Never below what it stands for, and infinity says what it means."""
    assert shown == figures.privacy(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(0.0, "0"), (0.108_199, "0.1081"), (4.0, "4"), (1.2399e-7, "1.239\u00a0×\u00a010⁻⁷")],
)
def test_what_an_attack_gains_is_rounded_down(epsilon: float, shown: str) -> None:
    """Never above what it proves; it may be without limit."""
    assert shown == figures.gained(epsilon)
    assert "∞" == figures.gained(math.inf)


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (0.0, "1"),
        (0.108_169_5, "1.115"),
        (4.0, "54.6"),
        (8.0, "2,981"),
        (10.0, "2.203\u00a0×\u00a010⁴"),
        (30.1, "10¹⁴"),
        (700.0, "10³⁰⁵"),
    ],
)
def test_odds_are_e_to_the_epsilon_rounded_up(epsilon: float, shown: str) -> None:
    """e⁴ is 54.598, e⁸ 2980.96, e¹⁰ 22026.5, e³⁰·¹ 1.18e13 and e⁷⁰⁰ 1.01e304."""
    assert shown == figures.odds(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "shown"),
    [
        (0.0, 0.0, "50\N{NO-BREAK SPACE}%"),
        (0.0, 0.1, "55.0\N{NO-BREAK SPACE}%"),
        (0.108_169_5, 0.0, "52.8\N{NO-BREAK SPACE}%"),
        (4.0, 0.0, "98.3\N{NO-BREAK SPACE}%"),
        (4.0, 0.5, "99.11\N{NO-BREAK SPACE}%"),
        (8.0, 0.0, "99.967\N{NO-BREAK SPACE}%"),
        (1.0, 1.0, "100\N{NO-BREAK SPACE}%"),
    ],
)
def test_certainty_starts_from_even_odds_and_counts_delta(
    epsilon: float, delta: float, shown: str
) -> None:
    """(e^ε + δ) / (1 + e^ε), rounded up: .55, .5270, .9820, .99101, .99966."""
    assert shown == figures.certainty(epsilon, delta)


@given(st.floats(1e-9, 12), st.sampled_from([0.0, 1e-12, 1e-6, 0.1]))
@example(1.098_612_288_668_109_8, 0.0)
def test_certainty_is_never_below_the_exact_one(epsilon: float, delta: float) -> None:
    """Not in the last digit either: e^ε is 3 and a little more for the ε of the example."""
    with localcontext(prec=60):
        power = Decimal(repr(epsilon)).exp()
        exact = 100 * (power + Decimal(repr(delta))) / (1 + power)
        assert (
            Decimal(figures.certainty(epsilon, delta).removesuffix("\N{NO-BREAK SPACE}%")) >= exact
        )


@pytest.mark.parametrize("epsilon", [12.0, 20.0, 1000.0])
def test_nobody_is_ever_shown_to_become_certain(epsilon: float) -> None:
    """A finite ε leaves a doubt, however small."""
    assert not figures.certainty(epsilon, 1e-6).startswith("100")


@pytest.mark.parametrize(
    ("delta", "shown"),
    [(1e-6, "0.000001"), (1.234_51e-7, "0.0000001235"), (1e-12, "10⁻¹²"), (0.0, "0")],
)
def test_a_delta_is_written_in_plain_digits_where_they_are_few(delta: float, shown: str) -> None:
    """Rounded up, as every figure of privacy."""
    assert shown == figures.probability(delta)


def test_a_share_has_the_digits_that_its_error_leaves() -> None:
    """Two digits of the error, and a real minus."""
    assert "\N{MINUS SIGN}1.23\N{NO-BREAK SPACE}%" == figures.percent(-0.01234, 0.0036)
    assert "12.346\N{NO-BREAK SPACE}%" == figures.percent(0.123_456, 0.000_31)
