"""Plans: the audited task's own draft, with a batch that so few users can fill."""

import dataclasses

import numpy as np
import pytest

from analyzer.task_builder import complete
from common.protocols import protocols_of
from deploy.audit.services.plan import plan_for, recovered
from tests.support.audited_services import audited, audited_task
from tests.support.protocol_tasks import ANALYZER_KEY, protocol_task


@pytest.mark.slow
@pytest.mark.parametrize("name", protocols_of("categorical"))
def test_a_task_can_be_made_again_of_the_draft_that_is_recovered(name: str) -> None:
    """Byte for byte, but for nonce and deadline."""
    task = protocol_task(name)
    again = complete(
        dataclasses.replace(recovered(task), deadline=task.deadline),
        analyzer_key=ANALYZER_KEY.public_key().raw,
        nonce=task.nonce,
    )

    assert task == again


def test_a_plan_is_that_of_its_seed() -> None:
    """Values, names and markers; another seed gives others."""
    one, same, other = (plan_for(audited(), np.random.default_rng(seed)) for seed in (1, 1, 2))

    assert (one.values, one.persons, one.marked_values) == (
        same.values,
        same.persons,
        same.marked_values,
    )
    assert one.values != other.values
    assert not set(one.persons) & set(other.persons)


def test_a_plan_has_as_many_users_as_there_is_time_for() -> None:
    """A user with a hundred dummies costs as much as fifty with one."""
    few = plan_for(audited(audited_task(dummies_per_user=100)), np.random.default_rng(1))

    assert 160 == plan_for(audited(), np.random.default_rng(1)).n_users
    assert 40 <= few.n_users < 100
    assert few.draft.n_min <= few.n_users // 3


def test_a_task_that_claims_nothing_for_so_few_users_is_played_all_the_same() -> None:
    """Without local noise, a hundred users' dummies over many items: at a larger δ."""
    task = audited_task(
        protocol="puredump", local_epsilon=float("inf"), domain_size=300, dummies_per_user=20
    )
    plan = plan_for(audited(task), np.random.default_rng(1))

    assert task.delta < plan.draft.delta
    assert plan.central_epsilon < float("inf")


def test_a_task_is_played_where_each_release_costs_something() -> None:
    """Where δ alone allows all that is learned, nothing would be charged: at a lesser δ."""
    task = audited_task(
        protocol="mixdump",
        domain_size=3,
        local_epsilon=0.2,
        dummies_per_user=100,
        delta=0.1,
        n_min=4,
        target_size=4,
    )
    plan = plan_for(audited(task), np.random.default_rng(1))

    assert plan.draft.delta < task.delta


def test_names_to_search_for_fit_into_a_task() -> None:
    """However many items have one."""
    task = audited_task(
        protocol="od-hp",
        domain_size=100_000,
        buckets=1009,
        labels=tuple(f"item {item}" for item in range(100_000)),
        n_min=10_000,
        target_size=10_000,
    )
    plan = plan_for(audited(task), np.random.default_rng(1))

    assert len(plan.draft.labels) == plan.draft.domain_size > 1009
    assert max(plan.values) < plan.draft.domain_size
