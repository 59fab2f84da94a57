"""Plans: the audited task's own draft, with a batch that so few users can fill."""

import dataclasses

import numpy as np
import pytest

from analyzer.registry import complete
from common.protocols import PROTOCOLS
from deploy.audit.services.plan import plan_for, recovered
from tests.support.audited_services import audited, audited_task
from tests.support.protocol_tasks import ANALYZER_KEY, every_protocol_task


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_task_can_be_made_again_of_the_draft_that_is_recovered(name: str) -> None:
    """Byte for byte, but for nonce and deadline."""
    task = every_protocol_task()[name]
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
