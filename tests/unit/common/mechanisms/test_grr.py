import math

import numpy as np
import pytest

from common.errors import TaskError
from common.mechanisms.randomized_response import Grr, Warner
from common.mechanisms.weights import ResponseWeights
from tests.support.mechanisms import Scripted

_GRR = Grr(5, ResponseWeights.for_epsilon(1.5))


def test_q_is_exact_if_p_rounds_to_one() -> None:
    """(1 - p)/(k - 1) would be 0."""
    grr = Grr(3, ResponseWeights(true=2**62, other=1))

    assert grr.p == 1.0
    assert grr.q == 1 / (2**62 + 2)


def test_without_noise_a_report_is_the_value() -> None:
    """Nothing is divided by zero; the floor consists of dummies."""
    grr, values = Grr(5, ResponseWeights.for_epsilon(math.inf)), np.array([4, 0, 0])
    channel = grr.channel(0.25)

    assert (1.0, 0.0) == (grr.p, grr.q)
    assert values.tolist() == grr.randomize(values, np.random.default_rng(1))["item"].tolist()
    assert channel.floor == pytest.approx(0.75 / 5)
    np.testing.assert_allclose(channel.forward(np.eye(5)[0]), [0.4, 0.15, 0.15, 0.15, 0.15])
    reduction = grr.reduction
    assert (0.0, 1.0, math.inf) == (reduction.blanket, reduction.signal, reduction.local_epsilon)


def test_warner_answers_truthfully_with_its_weight() -> None:
    """Three of four draws; for a bit only."""
    warner = Warner(2, ResponseWeights(true=3, other=1))
    for bit in (0, 1):
        reports = warner.randomize(np.full(4, bit), Scripted(np.arange(4)))
        assert [bit, bit, bit, 1 - bit] == reports["item"].tolist()
    with pytest.raises(TaskError, match="domain_size is 3; Warner's"):
        Warner(3, ResponseWeights(true=3, other=1))
