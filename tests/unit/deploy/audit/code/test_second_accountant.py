"""The program that judges the accountant: exact where batches are small, just to honest code."""

import math

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import Crowd
from common.mechanisms.reduction import MatchCountReduction
from deploy.audit.checks import Checks
from deploy.audit.code.accountant import check_arrived, check_task
from deploy.audit.code.second_accountant import formula_1
from deploy.audit.sample_task import sample_task
from tests.support.audits import audited
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task


@pytest.mark.parametrize(
    ("n", "local_epsilon", "buckets", "epsilon"),
    [
        (10_000, 0.5, 3, 0.01222),
        (10_000, 1.0, 4, 0.02935),
        (10_000, 4.0, 56, 0.27848),
        (602_325, 2.0, 8, 0.0086937),
        (602_325, 8.0, 2982, 0.27238),
    ],
)
def test_formula_1_gives_the_reference_figures(
    n: int, local_epsilon: float, buckets: int, epsilon: float
) -> None:
    """Central ε at δ = 1e-6 of shuffled hashing, to the digits that are known of them."""
    reduction = MatchCountReduction.for_epsilon(
        answers=buckets, local_epsilon=local_epsilon, hashed=True
    )

    assert formula_1(reduction, Crowd(users=n), epsilon) == pytest.approx(1e-6, rel=0.02)


@pytest.mark.parametrize("n", [40, 100, 150, 400, 1000])
@pytest.mark.parametrize(("buckets", "hashed"), [(5, False), (17, True)])
def test_formula_1_sums_the_far_tail_of_few_messages(n: int, buckets: int, hashed: bool) -> None:  # noqa: FBT001  # of the table
    """A grid that takes the nearest point gives up to twice as much there."""
    reduction = MatchCountReduction.for_epsilon(answers=buckets, local_epsilon=4.0, hashed=hashed)
    crowd = Crowd(users=n)
    epsilon = 0.98 * epsilon_upper(reduction, crowd, 1e-9)

    exact = formula_1(reduction, crowd, epsilon, exhaustive=True)
    assert formula_1(reduction, crowd, epsilon) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(
    "n_users",
    [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 40, 100))],
)
@pytest.mark.parametrize("protocol", OF_OTHER_KINDS)
def test_a_task_of_another_kind_for_few_users_passes(protocol: str, n_users: int) -> None:
    """Integers of a mechanism give away a hair less than the task's local ε, with any few users."""
    task = kind_task(protocol, n_min=n_users, target_size=n_users)
    checks = Checks()
    check_arrived(checks, audited(task, n_users=n_users))

    assert not checks.broken


@pytest.mark.parametrize(
    "n_users",
    [2, 3, 40, *(pytest.param(number, marks=pytest.mark.slow) for number in (5, 60, 100, 150))],
)
@pytest.mark.parametrize("protocol", ["sh", "od-hp", "puredump"])
def test_a_task_for_few_users_passes(protocol: str, n_users: int) -> None:
    """What is capped at the local ε, or far out in a tail, accuses no honest accountant."""
    noiseless = protocol == "puredump"
    task = sample_task(
        protocol=protocol,
        domain_size=5,
        local_epsilon=math.inf if noiseless else 1.0,
        dummies_per_user=3.0 if noiseless else float(protocol == "od-hp"),
        delta=0.5 if noiseless else 1e-6,
        n_min=n_users,
        target_size=n_users,
    )
    checks, subject = Checks(), audited(task, n_users=n_users)
    check_task(checks, subject)
    check_arrived(checks, subject)

    assert not checks.broken
