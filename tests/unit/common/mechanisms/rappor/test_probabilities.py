import itertools
import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.rappor.rappor import Probability, Rappor, rounded_weights
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.lab.bounds.general_blanket import rappor_pair
from shuffledp.lab.bounds.randomizers import rappor_probabilities
from tests.support.exhaustive_delta import Distribution
from tests.support.reference_bounds import unary

_PRECISE: Final = Context(prec=80)


def _rappor(f: Probability, p: Probability, q: Probability, hashes: int = 1) -> Rappor:
    return Rappor.of(Rappor.specify(bits=32, hashes=hashes, f=f, p=p, q=q), ())


@pytest.mark.parametrize(
    ("hashes", "f", "p", "q", "report", "lifetime"),
    [
        (4, "0.5", "0.5", "0.75", 2.1486, 8.7889),
        (2, "0.5", "0.5", "0.75", 1.0743, 4.3944),
        (2, "0.75", "0.5", "0.75", 0.5343, 2.0433),  # Chrome's; the notes print .5354
        (2, "0", "0.25", "0.75", 4.3944, math.inf),
        (1, "0.5", "0.25", "0.75", 1.0217, 2.1972),
    ],
)
def test_epsilons_match_published_ones(  # noqa: PLR0917
    hashes: int, f: str, p: str, q: str, report: float, lifetime: float
) -> None:
    """The ε of one report and of a lifetime equal the published figures."""
    rappor = _rappor(Fraction(f), Fraction(p), Fraction(q), hashes)

    assert report == pytest.approx(rappor.local_epsilon, abs=6e-5)
    assert lifetime == pytest.approx(rappor.permanent_epsilon, abs=6e-5)


@pytest.mark.parametrize(
    ("f", "p", "q"),
    [(0.1, 0.2, 0.9), (Fraction(1, 3), Fraction(1, 3), Fraction(2, 3)), (0.7, 0.0, 0.99999)],
)
def test_rounding_increases_no_epsilon(f: Probability, p: Probability, q: Probability) -> None:
    """Each probability moves by less than one step, towards more noise."""
    rappor = _rappor(f, p, q)
    permanent, rounded_p, rounded_q = rounded_weights(f, p, q)
    exact_f, exact_p, exact_q = Fraction(f), Fraction(p), Fraction(q)
    unset = (1 - exact_f) * exact_p + exact_f * (exact_p + exact_q) / 2
    shown = (1 - exact_f) * exact_q + exact_f * (exact_p + exact_q) / 2

    assert 0 <= Fraction(permanent, 128) - exact_f < Fraction(1, 128)
    assert 0 <= Fraction(rounded_p, 65536) - exact_p < Fraction(1, 65536)
    assert 0 <= exact_q - Fraction(rounded_q, 65536) < Fraction(1, 65536)
    assert rappor.local_epsilon <= math.log(shown * (1 - unset) / (unset * (1 - shown)))
    assert rappor.permanent_epsilon <= 2 * math.log((2 - exact_f) / exact_f)


@pytest.mark.parametrize(
    ("f", "p", "q", "sentence"),
    [
        (-0.1, 0.5, 0.75, "f is -0.1; it must lie between 0 and 1"),
        (0.5, 1.5, 0.75, "p is 1.5; it must lie between 0 and 1"),
        (0.5, 0.5, math.nan, "q must be a number"),
        (0.5, 0.5, math.inf, "q must be a number"),
        (0.999, 0.5, 0.75, "f is 0.999; rounded up to 128ths it must be below 1"),
        (0.5, 0.75, 0.5, "p is 0.75 and q 0.5; rounded to 65536ths p must be below q"),
        (0.5, 0.500001, 0.500002, "p must be below q"),
    ],
)
def test_invalid_probabilities_are_refused(f: float, p: float, q: float, sentence: str) -> None:
    """The message names the number that breaks the rule."""
    with pytest.raises(TaskError, match=sentence):
        rounded_weights(f, p, q)


def _distribution(bits: int, filled: frozenset[int], is_set: float, unset: float) -> Distribution:
    """Return the distribution of a filter whose bits are shown independently."""
    return {
        shown: math.prod(
            (p if bit else 1 - p)
            for bit, p in zip(
                shown, [is_set if i in filled else unset for i in range(bits)], strict=True
            )
        )
        for shown in itertools.product((0, 1), repeat=bits)
    }


def _worst(bits: int, hashes: int, is_set: float, unset: float) -> float:
    """Return the largest log-ratio over all reports and pairs of filters of up to h bits."""
    filters = [
        frozenset(filled)
        for size in range(1, hashes + 1)
        for filled in itertools.combinations(range(bits), size)
    ]
    distributions = [_distribution(bits, filled, is_set, unset) for filled in filters]
    return max(
        math.log(left[shown] / right[shown])
        for left in distributions
        for right in distributions
        for shown in left
    )


@pytest.mark.parametrize(("bits", "hashes"), [(6, 2), (4, 1), (6, 3)])
@pytest.mark.parametrize(("f", "p", "q"), [(0.5, 0.5, 0.75), (0.25, 0.0, 1.0), (0.0, 0.25, 0.625)])
def test_epsilons_match_the_worst_two_texts(
    bits: int, hashes: int, f: float, p: float, q: float
) -> None:
    """They equal the maximum over every report and filter, including colliding hashes."""
    rappor = _rappor(f, p, q, hashes)
    report = _worst(bits, hashes, rappor.set_probability, rappor.unset_probability)

    assert report == pytest.approx(rappor.local_epsilon, rel=1e-12)
    if f:
        lifetime = _worst(bits, hashes, 1 - f / 2, f / 2)
        assert lifetime == pytest.approx(rappor.permanent_epsilon, rel=1e-12)


@pytest.mark.parametrize("hashes", [1, 3, 16])
@pytest.mark.parametrize(("a", "p", "q"), [(64, 2**15, 49152), (1, 0, 65536), (127, 100, 101)])
def test_epsilons_are_rounded_up_and_by_no_more_than_a_float(
    hashes: int, a: int, p: int, q: int
) -> None:
    """The next lower float is below the 80-digit value computed from p* and q* of the paper."""
    f, low, high = Fraction(a, 128), Fraction(p, 65536), Fraction(q, 65536)
    rappor = _rappor(f, low, high, hashes)
    unset = f * (low + high) / 2 + (1 - f) * low
    shown = f * (low + high) / 2 + (1 - f) * high
    ratio = shown * (1 - unset) / (unset * (1 - shown))
    exact = hashes * _PRECISE.ln(_PRECISE.divide(ratio.numerator, ratio.denominator))
    stated = rappor.local_epsilon

    assert float(unset) == rappor.unset_probability
    assert float(shown) == rappor.set_probability
    assert Decimal(math.nextafter(stated, 0)) < exact <= Decimal(stated)


@pytest.mark.parametrize(("f", "p", "q"), [(0.5, 0.5, 0.75), (0.25, 0.25, 0.75), (0.5, 0.0, 1.0)])
def test_the_reduction_matches_the_one_from_floats(f: float, p: float, q: float) -> None:
    """It also matches the general blanket."""
    labels = tuple("abc")
    spec = Rappor.specify(bits=3, encoding="labels", f=f, p=p, q=q)
    found = Rappor.of(spec, labels).reduction
    assert isinstance(found, MatchCountReduction)
    expected = unary(*rappor_probabilities(f, p, q))
    pair = rappor_pair(f, p, q, hashes=1)

    assert expected.answers == pytest.approx(found.answers, rel=1e-12)
    assert expected.local_epsilon == pytest.approx(found.local_epsilon, rel=1e-12)
    assert expected.blanket == pytest.approx(found.blanket, rel=1e-12)
    assert expected.signal == pytest.approx(found.signal, rel=1e-12)
    assert ("independent", True) == (found.third_value, found.pairwise_independent)
    assert pair.blanket == pytest.approx(found.blanket, rel=1e-12)
