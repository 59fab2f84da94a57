"""Harmony and Multi-HM: random coordinates with separate answers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.common.mechanisms.numeric.coordinate_sampling import (
    MultiHm,
    equal_share,
    paper_sample,
)
from shuffledp.common.mechanisms.weights import ResponseWeights

_3_TO_1 = ResponseWeights(true=3, other=1)


@pytest.mark.parametrize(
    ("dimensions", "local_epsilon", "sampled"),
    [(10, 0.1, 1), (10, 2.49, 1), (10, 4.99, 1), (10, 5.0, 2), (10, 20.0, 8), (3, 20.0, 3)],
)
def test_the_number_of_coordinates_is_the_papers(
    dimensions: int, local_epsilon: float, sampled: int
) -> None:
    """It is max{1, min{d, ⌊ε/2.5⌋}}."""
    assert sampled == paper_sample(dimensions, local_epsilon)


def test_equal_shares_never_exceed_the_whole() -> None:
    """A share is the largest float whose multiple is at most the whole."""
    rng = np.random.default_rng(1)
    for local_epsilon in rng.uniform(0.01, 20, 2000):
        parts = int(rng.integers(1, 9))
        share = equal_share(float(local_epsilon), parts)
        more = math.nextafter(share, math.inf)
        assert Fraction(share) * parts <= Fraction(float(local_epsilon)) < Fraction(more) * parts
    assert math.inf == equal_share(math.inf, 3)


def test_sums_are_exact_over_many_reports() -> None:
    """Sums over several batches equal sums of integers by coordinate."""
    mechanism = MultiHm.for_epsilon(3, 6.0)
    rng = np.random.default_rng(2)
    reports = mechanism.randomize(rng.uniform(-1, 1, (600_000, 3)), rng)
    cells = mechanism.tally(reports).reshape(3, 5)
    for coordinate in range(3):
        codes = reports["codes"][reports["coordinates"] == coordinate].astype(np.int64)
        places = codes[codes >= 2] - 2
        expected = [
            (codes == 0).sum(),
            (codes == 1).sum(),
            len(places),
            places.sum(),
            (places**2).sum(),
        ]
        assert expected == cells[coordinate].tolist()
