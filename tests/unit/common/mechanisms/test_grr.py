import numpy as np

from common.mechanisms.randomized_response import Grr
from common.mechanisms.weights import ResponseWeights
from tests.support.mechanisms import Scripted


def test_q_is_exact_if_p_rounds_to_one() -> None:
    """The formula (1 - p)/(k - 1) would give 0."""
    grr = Grr(3, ResponseWeights(true=2**62, other=1))

    assert grr.p == 1.0
    assert grr.q == 1 / (2**62 + 2)


def test_warner_answers_truthfully_with_its_weight() -> None:
    """Three of four draws give the truth."""
    warner = Grr(2, ResponseWeights(true=3, other=1))
    for bit in (0, 1):
        reports = warner.randomize(np.full(4, bit), Scripted(np.arange(4)))
        assert [bit, bit, bit, 1 - bit] == reports["item"].tolist()
