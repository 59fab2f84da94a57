"""Bounds on sums of bounded draws, against exact laws."""

import numpy as np
import pytest
from scipy import stats

from deploy.audit.integrity.bounded_sum import BoundedSum


@pytest.mark.parametrize("chance", [1e-4, 0.02, 0.5, 0.97])
@pytest.mark.parametrize("draws", [20, 1000, 100_000])
def test_no_p_value_is_below_the_exact_one(draws: int, chance: float) -> None:
    """Of a binomial number, at every distance from its mean."""
    law = BoundedSum(low=0.0, high=1.0)
    law.add(draws, chance)
    exact = stats.binom(draws, chance)
    for number in np.unique(exact.ppf([1e-12, 1e-7, 1e-3, 0.3, 0.7, 0.999, 1 - 1e-7])):
        far = abs(number - draws * chance)
        outside = exact.cdf(draws * chance - far) + exact.sf(np.ceil(draws * chance + far) - 1)
        assert outside <= law.p_value(float(number)) * (1 + 1e-9)


def test_what_is_not_drawn_is_right_or_wrong() -> None:
    """To the rounding of its terms."""
    law = BoundedSum(low=0.0, high=10.0)
    law.add_certain(1e6)
    law.add_certain(-1e6 + 0.5)

    assert 1.0 == law.p_value(0.5 + 1e-6)
    assert 0.0 == law.p_value(0.6)


def test_a_law_that_is_far_off_is_seen() -> None:
    """Ten standard deviations."""
    law = BoundedSum(low=0.0, high=1.0)
    law.add(10_000, 0.5)

    assert law.p_value(5500.0) < 1e-7
    assert law.p_value(4500.0) < 1e-7
    assert law.p_value(5050.0) > 1e-1
