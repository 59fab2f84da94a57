from common.mechanisms.randomized_response import Grr
from common.mechanisms.weights import ResponseWeights


def test_q_is_exact_if_p_rounds_to_one() -> None:
    """The formula (1 - p)/(k - 1) would give 0."""
    grr = Grr(3, ResponseWeights(true=2**62, other=1))

    assert grr.p == 1.0
    assert grr.q == 1 / (2**62 + 2)
