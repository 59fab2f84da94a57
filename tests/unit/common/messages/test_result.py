import numpy as np
import pytest

from common.messages.result import Histogram


@pytest.mark.parametrize(
    ("errors_above_zero", "expected"),
    [
        # 1.96 standard errors distinguish one share from 0; among ten shares it takes 2.81.
        ([2.5], True),
        ([2.5, *[0.0] * 9], False),
        ([3.0, *[0.0] * 9], True),
        ([-3.0] * 10, False),
        # Equal shares cannot be told apart, but every one is above 0.
        ([9.0] * 10, True),
    ],
)
def test_a_share_is_distinguished_from_zero_among_all(
    errors_above_zero: list[float], *, expected: bool
) -> None:
    """By simultaneous intervals."""
    shares = np.array(errors_above_zero)
    histogram = Histogram(
        frequencies=shares, standard_errors=np.ones_like(shares), refined=shares, mse_theory=1.0
    )

    assert expected == histogram.any_share_above_zero(0.95)
