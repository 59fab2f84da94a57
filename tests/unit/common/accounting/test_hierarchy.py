"""The privacy of hierarchies: against the exact δ of tiny batches, and the law of each level."""

import dataclasses
import itertools
import math
from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.accounting.claims import delta_at_claim
from shuffledp.common.accounting.composition import ComposedRelease, composed_epsilon
from shuffledp.common.accounting.guarantees import claimed_release, guarantees
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.task import Task
from tests.support.changed_tasks import changed
from tests.support.exhaustive_delta import beside, excess
from tests.support.view_laws import hidden

_KEY: Final = bytes(31) + b"\x09"
_DRAFT: Final = TaskDraft(
    protocol="hierarchy",
    local_epsilon=math.inf,
    edges=EdgesSpec(low=0.0, high=1.0, buckets=4),
    buckets=2,
    dummies_per_user=3.0,
    delta=1e-4,
    n_min=400,
    target_size=400,
    deadline=4_000_000_000,
    shuffler_key=_KEY,
)


def _task(**changes: Any) -> Task:
    return complete(dataclasses.replace(_DRAFT, **changes), analyzer_key=_KEY, nonce=bytes(32))


def _exact_delta(task: Task, users: int, values: tuple[int, int], epsilon: float) -> float:
    """Return δ of replacing one value by another, from all joint views of all levels."""
    assert isinstance(task.dummies, ViewDummies)
    levels = list(enumerate(zip(task.dummies.views, task.view_sizes, strict=True)))
    last = len(levels) - 1  # of a binary tree
    views = [
        beside(
            *(hidden(value >> last - level, size, spec, users) for level, (spec, size) in levels)
        )
        for value in values
    ]
    return excess(views, epsilon)


@pytest.mark.parametrize("users", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dummies", [1.2, 3.0])
def test_no_claim_is_below_the_exact_delta(users: int, dummies: float) -> None:
    """The bound holds for every pair, and is nearly reached by one that differs at all levels."""
    task = changed(
        _task(), dummies=ViewDummies.averaging(dummies, (2, 4)), n_min=users, target_size=users
    )
    release = claimed_release(task, users)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        exact = [
            _exact_delta(task, users, values, epsilon)
            for values in itertools.permutations(range(4), 2)
        ]
        bound = release.delta(epsilon)
        assert max(exact) <= bound
        assert bound <= 1.03 * max(exact) + 1e-9


def test_fixed_dummies_of_each_level_hide_a_user_from_shuffler_and_analyzer() -> None:
    """As in a batch of this user alone; without a fixed number at a level, none is certified."""
    fixed, random = _task(dummies_per_user=60.0), _task(dummies_per_user=1.5)
    own = PrivacyParameters.of(fixed).own_release()
    none, by_dummies = (
        row for row in guarantees(fixed, 400, 0) if row.coalition == "shuffler+analyzer"
    )

    assert claimed_release(fixed, 1).delta(1.0) == own.delta(1.0) < 0.03
    assert by_dummies.epsilon < none.epsilon == math.inf
    least = min(view.per_user for view in fixed.dummies.views)
    own_dummies = "your device adds at least 60 uniform dummies of its own, at least"
    assert f"{own_dummies} {least} of each view" in by_dummies.assumptions
    assert math.inf == PrivacyParameters.of(random).own_release().local_epsilon
    assert PrivacyParameters.of(random).own_release() == PrivacyParameters.of(random).local_release


def test_a_delta_that_views_cannot_claim_is_refused() -> None:
    """The claims of the least one are computed."""
    assert math.isfinite(_task(delta=1e-12, dummies_per_user=60.0).central_epsilon)
    with pytest.raises(TaskError, match="it must be at least 1e-12 with several views"):
        _task(delta=9e-13)


def test_a_claim_holds_for_the_device_and_composes_with_other_rounds() -> None:
    """The claim meets δ; two rounds cost as much as the levels of both, more than one round."""
    task = _task()
    release = claimed_release(task, 400)

    assert isinstance(release, ComposedRelease)
    assert delta_at_claim(task) <= task.delta
    assert release.epsilon(task.delta) <= task.central_epsilon
    once = composed_epsilon([release], task.delta)
    twice = composed_epsilon([release, release], task.delta)
    assert twice == composed_epsilon([*release.releases, *release.releases], task.delta)
    assert once < twice < 2 * once


def test_fewer_honest_users_and_refused_reports_raise_epsilon() -> None:
    """Each level loses the dummies of users who are not honest, or whose reports were refused."""
    task = _task(assumed_honest_fraction=0.5)
    parameters = PrivacyParameters.of(task)
    found = [
        parameters.release_of(400, honest, honest, refused).epsilon(1e-4)
        for honest, refused in ((400, 0), (200, 0), (200, 20))
    ]

    assert found == sorted(found)
    assert found[0] < found[1] < found[2] < math.inf


def test_a_device_draws_dummies_of_each_level_by_its_law() -> None:
    """Numbers by level and nodes follow the task; fails by chance with probability 1e-7."""
    task = _task(
        edges=EdgesSpec(low=0.0, high=1.0, buckets=7), buckets=3, dummies_per_user=2.9, n_min=90,
        target_size=90, breakdown=BreakdownSpec(attribute="version", groups=("1", "2")),
    )  # fmt: skip
    mechanism, rng, users = mechanism_of(task), np.random.default_rng(27), 5_000
    assert isinstance(mechanism, Hierarchy)
    assert (6, 14) == task.view_sizes

    reports = [task.dummies.draw(mechanism, 1, rng)[1]["item"] for _ in range(users)]
    cells = np.bincount(np.concatenate(reports), minlength=20)
    numbers = np.array([len(report) for report in reports])

    assert isinstance(task.dummies, ViewDummies)
    for spec, first, size in zip(task.dummies.views, (0, 6), (6, 14), strict=True):
        of_level = cells[first : first + size]
        extra = of_level.sum() - users * spec.per_user
        assert 1e-8 < stats.binomtest(int(extra), users, spec.extra_probability).pvalue
        assert 1e-8 < stats.chisquare(of_level).pvalue
    lengths = np.bincount(numbers, minlength=task.dummies.maximum + 1)[task.dummies.certain :]
    expected = users * task.dummies.length_probabilities()
    assert 1e-8 < stats.chisquare(lengths, expected).pvalue
    assert task.lengths == tuple(2 + number for number in task.dummies.lengths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buckets": 1}, "buckets, the fan-out, is 1; it must be at least 2"),
        ({"edges": None, "domain_size": 4}, "the protocol hierarchy needs a table .edges."),
        ({"local_epsilon": 2.0}, "the protocol hierarchy has no local noise"),
        ({"dummies": ViewDummies.averaging(2.0, (4,)), "dummies_per_user": 0.0}, "have 1 views"),
        ({"dummies_per_user": 0.0}, "the task would guarantee nothing"),
    ],
)
def test_an_invalid_hierarchy_is_refused(changes: dict[str, object], message: str) -> None:
    """The message names the rule and the number that broke it."""
    with pytest.raises(TaskError, match=message):
        _task(**changes)
