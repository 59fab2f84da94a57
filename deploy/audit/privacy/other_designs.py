"""Other designs, played by the same code: where the audit must see an attack succeed."""

import dataclasses
from typing import Any, Final

import numpy as np

from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec
from deploy.audit.audited import Audited
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game_rows import not_reached
from deploy.audit.privacy.alone import play_n_minus_one
from deploy.audit.privacy.pooled import play_pooled
from deploy.audit.sample_task import sample_task

_ITEMS: Final = 26
_USERS: Final = 10_000
_GEOMETRIC: Final = ShufflerSpec(
    law="geometric", peak=20, left_weight=RATIO_SUM // 2, right_weight=RATIO_SUM // 2, most=60
)
_SHUFFLER_MADE: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("dummies by the shuffler alone", {"protocol": "sageo", "local_epsilon": float("inf")}),
    ("dummies by the shuffler, and local noise", {"protocol": "hybrid", "local_epsilon": 4.0}),
)


def play_pure_dump(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Play pureDUMP against shuffler and analyzer together: dummies, and no noise."""
    task = sample_task(
        protocol="puredump",
        domain_size=_ITEMS,
        local_epsilon=float("inf"),
        dummies_per_user=2.0,
        n_min=_USERS,
        target_size=_USERS,
    )
    other = Audited(task_bytes=task.to_bytes(), n_users=_USERS, effort=audited.effort)
    return Outcome(
        findings=tuple(
            _of_design(row, scenario="puredump", subject=f"pureDUMP over {_ITEMS} values")
            for row in play_pooled(other, rng).findings
        )
    )


def play_shuffler_dummies(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Play against a shuffler that made the dummies, reads the result, and knows other users."""
    rows: list[Finding] = []
    for subject, fields in _SHUFFLER_MADE:
        task = sample_task(domain_size=_ITEMS, shuffler=_GEOMETRIC, **fields)
        other = Audited(task_bytes=task.to_bytes(), n_users=_USERS, effort=audited.effort)
        rows.extend(
            _of_design(
                row,
                scenario="shuffler-dummies",
                subject=subject,
                coalition="shuffler+users",
                title="The shuffler takes its own dummies off the result",
                sentence="A shuffler that made the dummies takes them off the published counts; "
                "what is left of the person whose neighbours it knows is their own noise, or none.",
            )
            for row in play_n_minus_one(other, rng).findings
        )
    return Outcome(findings=tuple(rows))


def _of_design(row: Finding, **fields: Any) -> Finding:  # noqa: ANN401  # a Finding's
    """Tell a row of the design that was played: its attack is exact, and must get everything."""
    told = dataclasses.replace(row, advice="", **fields)
    return told if told.verdict == "reached" else not_reached(told)
