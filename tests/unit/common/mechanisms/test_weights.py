import math
from decimal import Context, Decimal

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.weights import OddsOfWeights, ResponseWeights
from tests.support.mechanisms import Scripted

_PRECISE = Context(prec=80)
_THOUSAND = sorted({round(float(e), 12) for e in np.geomspace(1e-6, 20, 997)} | {1.0, 4.0, 20.0})


def test_no_two_inputs_differ_by_more_than_the_promise() -> None:
    """For a thousand ε the exact ratio is in e^ε·(1 - 1e-9) .. e^ε; a larger `true` exceeds it."""
    for local_epsilon in _THOUSAND:
        weights = ResponseWeights.for_epsilon(local_epsilon)
        promise = _PRECISE.exp(Decimal(local_epsilon))
        ratio = _PRECISE.divide(Decimal(weights.true), Decimal(weights.other))

        assert ratio <= promise
        assert ratio >= promise * (1 - Decimal("1e-9"))
        assert weights.keeps_promise(local_epsilon)
        larger = ResponseWeights(true=weights.true + 1, other=weights.other)
        assert not larger.keeps_promise(local_epsilon)


@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 3.0, 12.0])
def test_the_closest_fractions_above_the_promise_are_refused(local_epsilon: float) -> None:
    """Convergents of e^ε are as close as two 60-bit integers can be."""
    promise = _PRECISE.exp(Decimal(local_epsilon))
    rest, (p0, q0), (p1, q1) = promise, (0, 1), (1, 0)
    seen = 0
    while p1 < 2**60:
        whole = int(rest)
        (p0, q0), (p1, q1) = (p1, q1), (whole * p1 + p0, whole * q1 + q0)
        rest = _PRECISE.divide(1, rest - whole)
        if p1 > q1 and p1 < 2**63:
            above = _PRECISE.divide(p1, q1) > promise
            keeps = ResponseWeights(true=p1, other=q1).keeps_promise(local_epsilon)
            assert not (above and keeps)
            seen += above
    assert seen > 5


def test_the_local_epsilon_of_weights_is_rounded_up() -> None:
    """It is the next float above the exact value, for two thousand pairs of integers."""
    rng = np.random.default_rng(1)
    for _ in range(2000):
        other = int(rng.integers(1, 2**40))
        weights = ResponseWeights(true=other + int(rng.integers(1, 2**45)), other=other)
        exact = _PRECISE.ln(_PRECISE.divide(weights.true, weights.other))
        assert Decimal(weights.local_epsilon) > exact
        assert Decimal(math.nextafter(weights.local_epsilon, 0)) <= exact


def test_large_weights_are_exact_at_their_edges() -> None:
    """The first and last draws of an answer are right beyond the precision of floats."""
    weights = ResponseWeights.for_epsilon(9.87)
    edges = np.array([0, weights.true - 1, weights.true, weights.total(5) - 1])

    assert [0, 0, 1, 4] == weights.respond(np.zeros(4, np.int64), 5, Scripted(edges)).tolist()


def test_without_noise_every_answer_is_the_truth() -> None:
    """The local ε is infinite, and nothing is drawn."""
    weights, truth = ResponseWeights.for_epsilon(math.inf), np.array([3, 0, 2])
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state

    assert ResponseWeights(true=1, other=0) == weights
    assert math.inf == weights.local_epsilon
    assert 1 == weights.total(10**9)
    assert truth.tolist() == weights.respond(truth, 4, rng).tolist()
    assert before == rng.bit_generator.state
    assert weights.keeps_promise(math.inf)
    assert not weights.keeps_promise(20.0)


def test_invalid_weights_are_refused() -> None:
    """An ε out of range, weights in a second form, and sums beyond 64 bits raise TaskError."""
    for local_epsilon in (0.0, 1e-10, -1.0, math.nan, -math.inf, 20.0001):
        with pytest.raises(TaskError, match="local_epsilon is"):
            ResponseWeights.for_epsilon(local_epsilon)
    for true, other in ((2, 0), (0, 0), (1, 1), (1, -1), (3, 4)):
        with pytest.raises(TaskError, match="the weights are"):
            ResponseWeights(true=true, other=other)
    with pytest.raises(TaskError, match="2\\^63"):
        ResponseWeights(true=2**62, other=2**61).total(4)


def test_a_mechanism_must_state_how_many_factors_its_odds_have() -> None:
    """A default could understate the local ε."""
    assert not hasattr(OddsOfWeights, "FACTORS")
