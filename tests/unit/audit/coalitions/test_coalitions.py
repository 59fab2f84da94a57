"""Computed and measured gains. Seeds are fixed; a bound errs with TEST_LEVEL."""

import math

import numpy as np
import pytest

from shuffledp.audit.coalitions.single_user import TESTED_DELTA, run_pooled
from shuffledp.audit.coalitions.whole_batch import run_colluders
from shuffledp.audit.harness.tasks import sample_task
from shuffledp.common.accounting.amplification import epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from tests.support.audits import audited

pytestmark = pytest.mark.slow


def _rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize(("protocol", "local_epsilon"), [("od-hp", 2.0), ("mixdump", 4.0)])
def test_shuffler_and_analyzer_gain_nine_tenths_of_the_claim(
    protocol: str, local_epsilon: float
) -> None:
    """For one report, of the local ε; among the user's dummies, of ε at the tested δ."""
    task = sample_task(
        protocol=protocol,
        domain_size=60,
        local_epsilon=local_epsilon,
        dummies_per_user=1.0,
        buckets=7 if protocol == "od-hp" else 0,
    )
    rows = list(run_pooled(audited(task, games=1_500_000), _rng()))

    assert all(row.passed for row in rows)
    assert [local_epsilon, 0.01] == [rows[0].claim_epsilon, rows[1].delta]
    for row in rows:
        least = 0.9 * (row.exact_epsilon or math.inf)
        assert (row.empirical_epsilon_lower or 0.0) >= least, row.title


def test_the_gain_among_the_users_own_dummies_is_exact() -> None:
    """For one user, formula 1 is exact and not only a bound."""
    task = sample_task(
        protocol="puredump", domain_size=26, local_epsilon=float("inf"), dummies_per_user=500.0
    )
    reduction = MatchCountReduction.for_epsilon(answers=26, local_epsilon=math.inf, hashed=False)
    _, row = run_pooled(audited(task, games=300_000), _rng())

    assert row.delta == TESTED_DELTA
    upper = epsilon_upper(reduction, AnonymitySet(users=1, dummies=500), TESTED_DELTA)
    assert 0.999 * upper < (row.exact_epsilon or 0.0) <= upper
    assert (row.empirical_epsilon_lower or 0.0) < upper


def test_claims_grow_with_the_share_of_colluders() -> None:
    """Attacks stay below the claims, and come close if few users are honest."""
    rows = list(run_colluders(audited(batches=1_000_000), _rng()))
    claims = [row.claim_epsilon or 0.0 for row in rows]
    *_, alone = rows

    assert all(row.passed for row in rows)
    assert claims == sorted(claims)
    assert alone.title.startswith("1 of ")
    assert (alone.empirical_epsilon_lower or 0.0) > 0.8 * (alone.exact_epsilon or math.inf)
