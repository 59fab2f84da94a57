import math
from fractions import Fraction

import pytest

from common.errors import TaskError
from common.mechanisms.one_hot import one_hot
from tests.support.report_laws import unary_law


@pytest.mark.parametrize("chance", ["3/4", "0.6", "0.95"])
def test_the_printed_epsilon_is_violated_and_twice_it_is_exact(chance: str) -> None:
    """By enumeration of all reports of three items: the largest ratio is (p / (1-p))²."""
    mechanism = one_hot(3, Fraction(chance))
    one, other = (unary_law(value, 3, mechanism.p, mechanism.q) for value in (0, 1))
    worst = max(math.log(one[report] / other[report]) for report in one)
    printed = math.log(mechanism.p / mechanism.q)

    assert worst > 1.9 * printed
    assert 2 * printed == pytest.approx(worst, rel=1e-12)
    assert mechanism.local_epsilon == pytest.approx(worst, rel=1e-12)
    assert not mechanism.keeps_promise(printed)
    assert mechanism.keeps_promise(math.nextafter(mechanism.local_epsilon, math.inf))


def test_every_bit_is_kept_with_the_chance_asked_for() -> None:
    """The own one and all others."""
    mechanism = one_hot(26, Fraction("0.9"))

    assert (9, 1) == (mechanism.weights.true, mechanism.weights.other)
    assert (0.9, 0.1) == (mechanism.p, mechanism.q)


@pytest.mark.parametrize("chance", ["1/2", "1", "0.2"])
def test_a_chance_that_says_nothing_or_everything_is_refused(chance: str) -> None:
    """P is above 1/2 and below 1."""
    with pytest.raises(TaskError):
        one_hot(3, Fraction(chance))
