"""The squared error of central Gaussian noise for every kind of value."""

import math
from typing import Any, Final

import numpy as np
import pytest

from common.protocols import Kind
from common.task.draft import NumberDraft
from lab.planning.calibration import gaussian_mu
from lab.planning.central_gaussian import gaussian_mse
from lab.planning.requirements import Requirements

_HOURS: Final = {"draft_fields": {"numbers": NumberDraft(low=0.0, high=24.0)}}


def _ratio(kind: Kind, **changes: Any) -> float:
    """Return the error relative to that of one sum of sensitivity 1."""
    fields: dict[str, Any] = {"n_users": 5000, "n_min": 5000, "domain_size": 1, "delta": 1e-6}
    target = Requirements(kind=kind, central_epsilon=0.5, **fields | changes)
    return gaussian_mse(target) * (gaussian_mu(0.5, 1e-6) * 5000) ** 2


@pytest.mark.parametrize(
    ("kind", "changes", "square"),
    [
        ("string", {}, 2.0),
        ("open", {}, 2.0),
        ("mean", {}, 2.0**2),
        ("mean", _HOURS, 24.0**2),
        ("vector", {"domain_size": 3} | _HOURS, 3 * 24.0**2),
        ("key-value", {"domain_size": 4}, 4.0),
        ("categorical", {"domain_size": 2}, 1.0),  # one count, which determines the other
        ("categorical", {"domain_size": 5, "rounds": 3}, 3 * 2 * 4 / 5),
    ],
)
def test_noise_has_the_sensitivity_of_what_is_published(
    kind: Kind, changes: dict[str, Any], square: float
) -> None:
    """Two counts change by 1, a number by its range, all numbers and keys at once."""
    assert square == pytest.approx(_ratio(kind, **changes))


@pytest.mark.parametrize("prefix", ["average", "worst"])
def test_prefixes_have_the_noise_of_shares_that_sum_to_one(prefix: str) -> None:
    """The noise of sixteen buckets, less its average, is summed up to each of them."""
    projection = math.sqrt(2) * (np.eye(16) - 1 / 16)
    sums = np.tril(np.ones((16, 16))) @ projection
    variances = (sums**2).sum(axis=1)

    expected = variances.max() if prefix == "worst" else variances.mean()
    found = _ratio("ordered", domain_size=16, prefix=prefix)
    assert expected == pytest.approx(found)
