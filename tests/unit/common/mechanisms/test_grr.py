import math

import numpy as np
import pytest

from common.errors import ReportError, ValueRangeError
from common.mechanisms.base import is_null, null_reports
from common.mechanisms.randomized_response import Grr
from common.mechanisms.weights import ResponseWeights

_GRR = Grr(5, ResponseWeights.for_epsilon(1.5))


def test_a_report_supports_the_item_it_names() -> None:
    """Cells, support and items are the same counts."""
    reports = _GRR.dummies(100, np.random.default_rng(1))
    cells = _GRR.tally(reports)

    assert np.bincount(reports["item"], minlength=5).tolist() == cells.tolist()
    assert cells.tolist() == _GRR.support_counts(cells).tolist()


def test_the_other_probability_survives_a_p_that_rounds_to_one() -> None:
    """(1 - p)/(k - 1) would be off or 0; the integers are not."""
    grr = Grr(3, ResponseWeights(true=2**62, other=1))

    assert grr.p == 1.0
    assert grr.q == 1 / (2**62 + 2)


def test_the_channel_is_the_law_of_a_report() -> None:
    """Users' own reports and dummies, mixed in the real share."""
    theta = np.array([0.5, 0.5, 0, 0, 0])
    law = _GRR.channel(0.25).forward(theta)

    own = theta * _GRR.p + (1 - theta) * _GRR.q
    np.testing.assert_allclose(law, 0.25 * own + 0.75 / 5, rtol=1e-12)


def test_without_noise_a_report_is_the_value() -> None:
    """No probability is divided by zero; what every item gets anyhow comes from dummies alone."""
    grr, values = Grr(5, ResponseWeights.for_epsilon(math.inf)), np.array([4, 0, 0])
    channel = grr.channel(0.25)

    assert (1.0, 0.0) == (grr.p, grr.q)
    assert values.tolist() == grr.randomize(values, np.random.default_rng(1))["item"].tolist()
    assert channel.floor == pytest.approx(0.75 / 5)
    np.testing.assert_allclose(channel.forward(np.eye(5)[0]), [0.4, 0.15, 0.15, 0.15, 0.15])
    reduction = grr.reduction
    assert (0.0, 1.0, math.inf) == (reduction.blanket, reduction.signal, reduction.local_epsilon)


@pytest.mark.parametrize("value", [-1, 5])
def test_a_value_outside_the_domain_is_refused(value: int) -> None:
    """Before anything is drawn."""
    with pytest.raises(ValueRangeError):
        _GRR.randomize(np.array([value]), np.random.default_rng(0))


def test_an_item_out_of_range_is_no_report() -> None:
    """Padding neither."""
    reports = null_reports(2, _GRR.report_dtype)

    assert is_null(reports).all()
    assert not _GRR.valid(reports).any()
    with pytest.raises(ReportError):
        _GRR.tally(reports)
