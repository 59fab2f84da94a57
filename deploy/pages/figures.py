"""Format numbers for readers, and escape text for LaTeX."""

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Final

from shuffledp.common.messages.guarantee import rounded_down, rounded_up

_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LATEX: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "{}&%$#_"},
    }
)
_EXACT_POWER: Final = 30.0
"""Above this ε, e^ε is rounded up to a power of ten."""
_SMALLEST_PLAIN: Final = Decimal("1e-9")
"""Smallest probability written in plain digits."""


def format_parameter(value: object) -> str:
    """Format a task parameter: `1,000` for an int, `2` for 2.0, `1, 2; 3, 4` for a tuple of two."""
    if isinstance(value, tuple):
        nested = any(isinstance(each, tuple) for each in value)
        return ("; " if nested else ", ").join(map(format_parameter, value)) or "none"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def format_privacy(figure: float) -> str:
    """Format an ε or a δ, rounded up to four digits; "no guarantee" if it is infinite."""
    return "no guarantee" if math.isinf(figure) else _typeset(rounded_up(figure))


def format_lower_bound(epsilon: float) -> str:
    """Format a remaining budget or an attack's ε, rounded down to four digits."""
    return "∞" if math.isinf(epsilon) else _typeset(rounded_down(epsilon))


def format_odds(epsilon: float) -> str:
    """Format e^ε of a finite ε, rounded up: the largest factor by which a probability may grow."""
    if epsilon > _EXACT_POWER:
        exponent = math.ceil(math.nextafter(epsilon / math.log(10), math.inf))
        return _typeset(f"1e{exponent}")
    # The error of exp is below one unit in the last place, so the next float is an upper bound.
    power = 1.0 if epsilon == 0 else math.nextafter(math.exp(epsilon), math.inf)
    return _typeset(rounded_up(power))


def format_probability(delta: float) -> str:
    """Format a δ, rounded up, in plain digits unless it is tiny."""
    rounded = Decimal(rounded_up(delta))
    return f"{rounded:f}" if rounded == 0 or rounded >= _SMALLEST_PLAIN else format_privacy(delta)


def format_certainty(epsilon: float, delta: float) -> str:
    """
    Format the largest probability of guessing right between two equally likely values.

    It is 1/2 + TV/2 for a total variation TV ≤ (e^ε - 1 + 2δ) / (e^ε + 1) [KOV15], so at most
    (e^ε + δ) / (1 + e^ε). Formatted in percent, rounded up; "nearly 100 %" close to 1.
    """
    with localcontext(prec=50):
        power = Decimal(repr(min(epsilon, 700.0))).exp()
        left = 100 * (1 - Decimal(repr(delta))) / (1 + power)  # percent below 100
        percent, digits = "nearly 100", max(1, 1 - left.adjusted())
        if epsilon == 0 == delta or left <= 0:
            percent = "100" if delta else "50"
        elif digits <= 6:  # noqa: PLR2004  # shows up to six nines
            percent = f"{(100 - left).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING)}"
    return f"{percent}\N{NO-BREAK SPACE}%"


def format_scientific(number: float) -> str:
    """Format a number to three digits; not for privacy figures, which must be rounded up."""
    return "0" if number == 0 else _typeset(f"{number:.3g}")


def format_seconds(duration: float) -> str:
    """Format a duration in seconds."""
    return f"{duration:.1f} s" if duration < 100 else f"{duration:,.0f} s"  # noqa: PLR2004  # seconds


def escape_latex(text: str) -> str:
    """Escape text for LaTeX."""
    return text.translate(_LATEX)


def _typeset(text: str) -> str:
    """Format 1e-06 as 10⁻⁶ and 4.852e+08 as 4.852 × 10⁸, with thousands separators."""
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        whole, point, fraction = mantissa.partition(".")
        return f"{int(whole):,}{point}{fraction}"
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}{power}"
