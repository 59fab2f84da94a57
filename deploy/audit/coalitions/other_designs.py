"""Other designs, run by the same code, on which an attack must succeed."""

import dataclasses
import math
from typing import Final

import numpy as np

from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec
from deploy.audit.coalitions.alone import run_n_minus_one
from deploy.audit.coalitions.pooled import run_pooled
from deploy.audit.finding import Finding, Findings
from deploy.audit.game_rows import not_reached
from deploy.audit.sample_task import sample_task
from deploy.audit.subject import AuditSubject

_ITEMS: Final = 26
_USERS: Final = 10_000
_GEOMETRIC: Final = ShufflerSpec(
    law="geometric", peak=20, left_weight=RATIO_SUM // 2, right_weight=RATIO_SUM // 2, most=60
)
_SHUFFLER_MADE: Final = (
    ("dummies by the shuffler alone", "sageo", math.inf),
    ("dummies by the shuffler, and local noise", "hybrid", 4.0),
)
_ALL: Final = 0.9
"""Share of the local ε that an attack gets where nothing else protects a user."""


def run_pure_dump(
    subject: AuditSubject,
    rng: np.random.Generator,
    noisy: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Run pureDUMP, which has dummies and no noise, against shuffler and analyzer together.

    Args:
        subject: Gives the sample sizes.
        rng: Source of all draws.
        noisy: Whether reports carry local noise after all.
    """
    task = sample_task(
        protocol="mixdump" if noisy else "puredump",
        domain_size=_ITEMS,
        local_epsilon=1.0 if noisy else math.inf,
        dummies_per_user=2.0,
        n_min=_USERS,
        target_size=_USERS,
    )
    other = AuditSubject(task_bytes=task.to_bytes(), n_users=_USERS, sizes=subject.sizes)
    rows = [
        dataclasses.replace(
            row, scenario="puredump", subject=f"pureDUMP over {_ITEMS} values", advice=""
        )
        for row in run_pooled(other, rng).findings
    ]
    one_report = _must_reach(rows[0], math.inf)
    return Findings(
        findings=(
            one_report,
            *(row if row.verdict == "reached" else not_reached(row) for row in rows[1:]),
        )
    )


def run_shuffler_dummies(
    subject: AuditSubject,
    rng: np.random.Generator,
    noisy: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Run the n-1 attack of a shuffler that made the dummies, reads the result and knows other users.

    Args:
        subject: Gives the sample sizes.
        rng: Source of all draws.
        noisy: Whether users add more noise than the design says.
    """
    rows: list[Finding] = []
    for design, protocol, local_epsilon in _SHUFFLER_MADE:
        task = sample_task(
            domain_size=_ITEMS,
            shuffler=_GEOMETRIC,
            protocol="hybrid" if noisy else protocol,
            local_epsilon=1.0 if noisy else local_epsilon,
        )
        other = AuditSubject(task_bytes=task.to_bytes(), n_users=_USERS, sizes=subject.sizes)
        for row in run_n_minus_one(other, rng).findings:
            told = dataclasses.replace(
                row,
                scenario="shuffler-dummies",
                subject=design,
                coalition="shuffler+users",
                title="The shuffler subtracts its own dummies from the result",
                sentence="A shuffler that made the dummies subtracts them from the published "
                "counts; the victim is left with their own noise, or none.",
                advice="",
            )
            rows.append(_must_reach(told, local_epsilon))
    return Findings(findings=tuple(rows))


def _must_reach(row: Finding, local_epsilon: float) -> Finding:
    """Return the finding of an attack that nothing but local noise hinders."""
    most = min(local_epsilon, row.ceiling or 0.0)
    gained = (row.empirical_epsilon_lower or 0.0) >= _ALL * most
    return row if row.verdict == "reached" and gained else not_reached(row)
