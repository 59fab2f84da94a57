import math
from fractions import Fraction

import numpy as np
import pytest

from common.errors import TaskError
from common.mechanisms.randomized_response import Warner
from common.mechanisms.weights import ResponseWeights
from tests.support.mechanisms import Scripted


@pytest.mark.parametrize(
    ("chance", "local_epsilon"),
    [("3/4", math.log(3)), ("0.51", math.log(51 / 49)), ("0.999", math.log(999))],
)
def test_a_bit_is_kept_with_the_chance_asked_for(chance: str, local_epsilon: float) -> None:
    """Exactly, and ε = ln(p / (1-p))."""
    warner = Warner.keeping(Fraction(chance))

    assert float(Fraction(chance)) == warner.p
    assert float(1 - Fraction(chance)) == warner.q
    assert local_epsilon == pytest.approx(warner.local_epsilon, rel=1e-12)


def test_every_draw_is_the_truth_or_the_opposite() -> None:
    """Of four draws, three are the truth."""
    warner = Warner.keeping(Fraction(3, 4))
    for bit in (0, 1):
        reports = warner.randomize(np.full(4, bit), Scripted(np.arange(4)))
        assert [bit, bit, bit, 1 - bit] == reports["item"].tolist()


def test_always_telling_the_truth_is_no_noise() -> None:
    """Weights 1 and 0."""
    assert ResponseWeights(true=1, other=0) == Warner.keeping(Fraction(1)).weights


@pytest.mark.parametrize("chance", ["1/2", "0", "0.3", "1.01"])
def test_a_coin_that_says_nothing_is_refused(chance: str) -> None:
    """P must be above 1/2 and at most 1."""
    with pytest.raises(TaskError, match="above 1/2 and at most 1"):
        Warner.keeping(Fraction(chance))


def test_it_is_for_a_bit_only() -> None:
    """Over more items it is GRR."""
    with pytest.raises(TaskError, match="domain_size is 3; Warner's"):
        Warner(3, ResponseWeights(true=3, other=1))
