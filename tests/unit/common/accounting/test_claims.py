import dataclasses
from typing import Any

import pytest

from common.accounting.amplification import delta_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.guarantees import claimable_epsilon, claimed_release, delta_at_claim
from common.mechanisms.registry import mechanism_of
from tests.support.tasks import published

_CASES: list[dict[str, Any]] = [
    {"n_min": 10},
    {"n_min": 50},
    {"n_min": 137, "delta": 1e-2},
    {"n_min": 500, "local_epsilon": 4.0},
    {"n_min": 20_000, "local_epsilon": 4.0},
    {"n_min": 1000, "delta": 1e-15, "dummies_per_user": 0},
    {"n_min": 1000, "domain_size": 5, "local_epsilon": 1.0},
    {"n_min": 30, "domain_size": 2, "local_epsilon": 0.1, "delta": 0.1},
    {"n_min": 3000, "local_epsilon": 8.0, "dummies_per_user": 2, "assumed_honest_fraction": 0.3},
]


@pytest.mark.parametrize("changes", _CASES, ids=str)
def test_claims_are_confirmed_and_close_to_the_bound(
    changes: dict[str, Any],
) -> None:
    """
    The device's δ is below the task's by the error of bins (.2 %),
    which costs less than .5 % of ε.
    """
    task = published(target_size=30_000, **changes).task
    holds = claimed_release(task, task.n_min).epsilon(task.delta)

    assert delta_at_claim(task) <= 0.998 * task.delta
    assert min(holds, task.local_epsilon) <= task.central_epsilon <= task.local_epsilon
    assert task.central_epsilon <= 1.005 * holds
    assert task.central_epsilon == float(f"{task.central_epsilon:.6g}")


def test_a_claim_counts_only_users_assumed_honest() -> None:
    """A claim for 200 honest users is too low if half of them are honest."""
    all_honest, half = (
        published(n_min=200, target_size=200, assumed_honest_fraction=share).task
        for share in (1.0, 0.5)
    )
    reduction = mechanism_of(half).reduction
    assert reduction is not None
    crowd = AnonymitySet(users=100, dummies=100 * half.dummies.per_user)

    assert delta_upper(reduction, crowd, half.central_epsilon) <= half.delta
    assert half.central_epsilon > all_honest.central_epsilon
    lower = dataclasses.replace(half, central_epsilon=all_honest.central_epsilon)
    assert delta_at_claim(lower) > half.delta


def test_a_claim_that_is_too_low_is_detected() -> None:
    """By two per cent."""
    task = published(n_min=500, target_size=500).task
    lower = dataclasses.replace(task, central_epsilon=0.98 * task.central_epsilon)

    assert delta_at_claim(lower) > task.delta


def test_a_claim_of_the_local_epsilon_always_holds() -> None:
    """A single user has no amplification."""
    task = published(n_min=1, target_size=1, dummies_per_user=0).task

    assert task.local_epsilon == claimable_epsilon(task)
    assert 0 == delta_at_claim(dataclasses.replace(task, central_epsilon=task.local_epsilon))
