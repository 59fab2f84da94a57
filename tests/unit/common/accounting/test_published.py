import math

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.crowd import Crowd
from common.accounting.published import od_hp_theorem_1
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.reduction import MatchCountReduction


def _hashing(buckets: int, local_epsilon: float) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(
        answers=buckets, local_epsilon=local_epsilon, hashed=True
    )


def test_theorem_1_is_the_printed_formula() -> None:
    """One point, worked out by hand: the n-1 other users' blanket and nm dummies."""
    gamma = 16 / (math.exp(8) + 15)
    expected_blanket = gamma * 602_324
    blanket = 602_325 * 4 + expected_blanket - math.sqrt(2 * expected_blanket * math.log(2e6)) - 1
    expected = math.sqrt(14 * 16 * math.log(4e6) / blanket)

    claim = od_hp_theorem_1(_hashing(16, 8.0), Crowd(users=602_325, dummies=4 * 602_325), 1e-6)

    assert claim == pytest.approx(expected, rel=1e-12)
    assert claim == pytest.approx(0.0376, abs=1e-4)


def test_theorem_1_is_far_above_the_tight_value_where_both_speak() -> None:
    """Five times and more; it is shown, never relied on."""
    reduction, crowd = _hashing(53, 4.0), Crowd(users=602_156, dummies=602_156)

    assert od_hp_theorem_1(reduction, crowd, 1e-6) > 5 * epsilon_upper(reduction, crowd, 1e-6)


@pytest.mark.parametrize(
    ("crowd", "message"),
    [
        (Crowd(users=1), "a blanket of more than one report"),
        (Crowd(users=5000, dummies=5000), "holds for ε ≤ 1"),
    ],
)
def test_outside_its_range_the_theorem_says_nothing(crowd: Crowd, message: str) -> None:
    """A refusal, not a number."""
    with pytest.raises(BoundRangeError, match=message):
        od_hp_theorem_1(_hashing(53, 4.0), crowd, 1e-6)


def test_the_second_condition_is_enforced() -> None:
    """At large δ the first condition holds and the blanket is still too small."""
    with pytest.raises(BoundRangeError, match="needs a blanket of"):
        od_hp_theorem_1(_hashing(1000, 8.0), Crowd(users=2, dummies=22_000), 0.9)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_delta_has_a_range(delta: float) -> None:
    """Strictly between 0 and 1."""
    with pytest.raises(AccountingError):
        od_hp_theorem_1(_hashing(16, 8.0), Crowd(users=100), delta)
