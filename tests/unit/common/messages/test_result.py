import numpy as np
import pytest

from common.messages.result import Histogram, interval_half_width


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
    errors_above_zero: list[float],
    expected: bool,  # noqa: FBT001
) -> None:
    """By simultaneous intervals: half-widths 1.96 for a single share, 2.81 for ten."""
    shares = np.array(errors_above_zero) / 64
    histogram = Histogram(
        frequencies=shares,
        standard_errors=np.full(len(shares), 1 / 64),
        refined=shares,
        mse_theory=64.0**-2,
    )

    assert expected == histogram.any_share_above_zero(0.95)
    assert interval_half_width(0.995) == pytest.approx(2.807, abs=1e-3)
