"""Errors and influence of designs for items, as of published shares."""

import math
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.analyzer.finalize import mixture_of
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.mechanisms.support import SupportCounting
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.lab.planning.design import Design
from tests.support.requirements import small_requirements

_NOISE: Final = ShufflerSpec(
    noise=GeometricNoise(peak=20, left_weight=2**29, right_weight=2**29, most=60)
)


def _design(protocol: str, size: int, **fields: Any) -> Design:
    target = small_requirements(domain_size=size, head=(0.5, 0.3))
    return Design.of(protocol, target, **fields)


def _covariance(design: Design, shares: np.ndarray) -> ShareCovariance:
    sent = 20_000 * design.unclaimed.expected_reports_per_user
    mixture = mixture_of(design.unclaimed, 20_000, counted=round(sent))
    return ShareCovariance.of(design.unclaimed, shares, mixture)


@pytest.mark.parametrize("size", [2, 5])
def test_a_plan_knows_the_total(size: int) -> None:
    """The shuffler's noise on an item loses 1/d of its variance: half for yes and no."""
    design = _design("sageo", size, shuffler=_NOISE)
    _, spread = _NOISE.noise.moments()

    assert spread * (1 - 1 / size) / 20_000**2 == pytest.approx(design.mse)
    assert [design.mse] * 2 == pytest.approx(design.head_errors())


@pytest.mark.parametrize(
    ("size", "buckets", "tolerance"), [(58, 53, 1e-12), (30, 7, 1e-12), (400, 367, 5e-3)]
)
def test_hashed_reports_are_planned_with_the_known_total(
    size: int, buckets: int, tolerance: float
) -> None:
    """It takes several percent off the error; for large families this is approximated."""
    fields = {"buckets": buckets, "local_epsilon": 7.0, "dummies_per_user": 1.0}
    design = _design("od-hp", size, **fields)
    head = np.array([0.5, 0.3, *[0.2 / (size - 2)] * (size - 2)])
    even = np.full(size, 1 / size)
    alone = mechanism_of(design.unclaimed).variance(even, _covariance(design, even).mixture).mean()

    expected = float(_covariance(design, even).of_shares().mean())
    assert expected == pytest.approx(design.mse, rel=tolerance)
    assert design.mse < 0.98 * alone
    found = _covariance(design, head).of_shares()[:2]
    assert found == pytest.approx(design.head_errors(), rel=2 * math.sqrt(tolerance))


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        ("sh", {"local_epsilon": 2.0}),
        ("mixdump", {"local_epsilon": 2.0, "dummies_per_user": 2.0}),
        ("od-hp", {"buckets": 7, "local_epsilon": 2.0, "dummies_per_user": 2.0}),
        ("sageo", {"shuffler": _NOISE}),
    ],
)
def test_influence_is_that_of_the_heaviest_report(protocol: str, fields: dict[str, Any]) -> None:
    """Of all reports, sent as often as the task allows, on shares with an even correction."""
    design = _design(protocol, 30, **fields)
    mechanism, task = mechanism_of(design.unclaimed), design.unclaimed
    assert isinstance(mechanism, SupportCounting)
    users, most = 1000, task.lengths[-1]
    reports = np.unique(mechanism.dummies(20_000, np.random.default_rng(1)))
    nothing = np.zeros_like(mechanism.tally(reports))
    mixtures = [mixture_of(task, n, counted=n * most) for n in (users, users + 1)]
    before = users * mechanism.debias(nothing, mixtures[0])
    added = [most * mechanism.tally(reports[[each]]) for each in range(len(reports))]
    after = [(users + 1) * mechanism.debias(each, mixtures[1]) for each in added]
    moved = np.array(after) - before
    moved -= (moved.sum(axis=1, keepdims=True) - 1) / 30

    assert (moved.max(), -moved.min()) == pytest.approx(design.influence, rel=1e-9)
