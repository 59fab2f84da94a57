from dataclasses import replace

import numpy as np
import pytest

from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.signed import Signed
from shuffledp.common.messages.result import Histogram, interval_half_width
from tests.support.protocol_tasks import protocol_task


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


def test_intervals_widen_with_confidence_beyond_the_end_of_the_table() -> None:
    """Without a table they are the normal distribution's; clusters' tails are heavier."""
    none = np.zeros(3)
    normal = Histogram(frequencies=none, standard_errors=none, refined=none, mse_theory=0.0)
    table = Signed.of(protocol_task("signed")).interval_table(Mixture(n_real=1000))
    clusters, width = replace(normal, table=table), table.reaches(1 - 1e-9)[1][0]
    confidences = 1 - np.geomspace(1, 1e-14, 400)
    found = [clusters.half_width(confidence) for confidence in confidences]

    assert interval_half_width(0.95) == pytest.approx(normal.half_width(0.95), rel=1e-3)
    assert found == sorted(found)
    assert found[0] < width < found[-1]
    assert clusters.half_width(1 - 1e-11) > clusters.half_width(1 - 1e-10) > width
    assert clusters.half_width(1 - 1e-9) == pytest.approx(width, rel=2e-3)
    assert normal.half_width(1 - 1e-6) < clusters.half_width(1 - 1e-6) < 2 * 4.9
