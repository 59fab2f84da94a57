import numpy as np

from shuffledp.common.mechanisms.numeric.mean_est import MeanEst
from shuffledp.common.mechanisms.weights import ResponseWeights
from tests.support.mechanisms import Scripted

_3_TO_1 = ResponseWeights(true=3, other=1)


def test_ties_are_drawn_until_one_stays() -> None:
    """A tie is drawn again, and the other reports stay in their places."""
    mechanism = MeanEst(2, _3_TO_1)
    rounds = [
        np.zeros((2, 2)),  # rounding to the corners (+, +) and (-, -)
        [[0b01], [0b00]],  # a tie, and the second person's own corner
        [0, 0],  # the truth about both sides
        [2**16 - 1],  # the tie does not stay
        [[0b11]],  # the first person's own corner
        [0],
        np.empty(0),
    ]
    reports = mechanism.randomize(np.array([[1.0, 1.0], [-1.0, -1.0]]), Scripted(*rounds))

    assert [[0b11], [0b00]] == reports["bits"].tolist()
