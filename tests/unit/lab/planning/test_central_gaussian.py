"""The squared error of central Gaussian noise for every kind of value."""

import itertools
import math
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.messages.result import Figures
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.central_gaussian import gaussian_mse
from shuffledp.lab.planning.requirements import Requirements

_HOURS: Final = {"draft_fields": {"numbers": NumberDraft(low=0.0, high=24.0)}}


def _ratio(kind: Kind, **changes: Any) -> float:
    """Return the error relative to that of one sum of sensitivity 1."""
    fields: dict[str, Any] = {"n_users": 5000, "n_min": 5000, "domain_size": 1, "delta": 1e-6}
    target = Requirements(kind=kind, central_epsilon=0.5, **fields | changes)
    return gaussian_mse(target) * (gaussian_mu(0.5, 1e-6) * 5000) ** 2


def _items(size: int) -> Figures:
    """Return the counts that a user with each item adds."""
    return np.eye(size)


def _numbers(count: int, ends: tuple[float, ...]) -> Figures:
    """Return the sums that users with any of these numbers in every place add."""
    return np.array(list(itertools.product(ends, repeat=count)))


@pytest.mark.parametrize(
    ("kind", "changes", "added"),
    [
        ("string", {}, _items(3)),
        ("open", {}, _items(5)),
        ("mean", {}, _numbers(1, (-1.0, 0.3, 1.0))),
        ("mean", _HOURS, _numbers(1, (0.0, 7.0, 24.0))),
        ("vector", {"domain_size": 3} | _HOURS, _numbers(3, (0.0, 9.0, 24.0))),
        ("key-value", {"domain_size": 4}, _numbers(4, (0.0, 1.0))),  # owns each key, or not
        ("categorical", {"domain_size": 2}, _items(2)),
        ("categorical", {"domain_size": 5, "rounds": 3}, _items(5)),
    ],
)
def test_noise_has_the_sensitivity_of_what_is_published(
    kind: Kind, changes: dict[str, Any], added: Figures
) -> None:
    """
    All neighbours of all data of two users are enumerated.

    Items sum to the number of users, so that their noise is projected; texts may be off the list.
    """
    size = added.shape[1]
    square = max(
        float(((one + rest - other - rest) ** 2).sum())
        for rest in added
        for one, other in itertools.permutations(added, 2)
    )
    kept = np.eye(size) - (kind == "categorical") / size
    of_each = square * (kept @ kept.T).trace() / size

    assert changes.get("rounds", 1) * of_each == pytest.approx(_ratio(kind, **changes))


@pytest.mark.parametrize("prefix", ["average", "worst"])
def test_prefixes_have_the_noise_of_shares_that_sum_to_one(prefix: str) -> None:
    """The noise of sixteen buckets, less its average, is summed up to each of them."""
    projection = math.sqrt(2) * (np.eye(16) - 1 / 16)
    sums = np.tril(np.ones((16, 16))) @ projection
    variances = (sums**2).sum(axis=1)

    expected = variances.max() if prefix == "worst" else variances.mean()
    found = _ratio("ordered", domain_size=16, prefix=prefix)
    assert expected == pytest.approx(found)
