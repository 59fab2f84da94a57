import math
from fractions import Fraction

import pytest

from common.accounting.count_distributions import Binomial, BinomialWindow


@pytest.mark.parametrize("chance", [0.5, 0.125, 0.0009765625])
@pytest.mark.parametrize("trials", [0, 1, 7, 1000])
def test_masses_are_the_true_ones_rounded_up(trials: int, chance: float) -> None:
    """By less than 1e-11, against rational arithmetic; the rest is at most the tail."""
    window = BinomialWindow.of(Binomial(trials, chance), 1e-30)
    p = Fraction(chance)

    for z, mass in zip(window.outcomes, window.masses, strict=True):
        true = math.comb(trials, int(z)) * p ** int(z) * (1 - p) ** (trials - int(z))
        assert true <= Fraction(float(mass)) <= true * (1 + Fraction(1, 10**11))
    assert window.below <= 1.01e-30
    assert window.above <= 1.01e-30


def test_a_billion_trials_keep_nine_digits() -> None:
    """At the mode and five standard deviations off, against exact logarithms."""
    trials = 10**9
    window = BinomialWindow.of(Binomial(trials, 0.5), 1e-30)
    middle = trials // 2 - window.first
    step = 5 * 15_811

    ratio = window.masses[middle + step] / window.masses[middle]

    # The product of (n/2 - j) / (n/2 + j + 1) in exact arithmetic, by its logarithm.
    log = math.fsum(math.log1p(-(2 * j + 1) / (trials / 2 + j + 1)) for j in range(step))
    assert ratio == pytest.approx(math.exp(log), rel=1e-9)
    assert window.masses.sum() == pytest.approx(1, rel=1e-8)
