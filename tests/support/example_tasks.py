"""Drafts that differ in every field, a digest, and what an analyzer lists of a task."""

from typing import Any, Final

from shuffledp.common.messages.batch import TaskState, TaskSummary
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.common.task.uniform_dummies import NegativeBinomialDummies
from shuffledp.common.task_digest import TaskDigest
from tests.support.tasks import draft

EXAMPLE_DIGEST: Final = TaskDigest(b"\xd1" * 32)
_NEGATIVE_BINOMIAL: Final = NegativeBinomialDummies(
    per_user=1, trials=8, extra_weight=2**30, most=90
)
_GEOMETRIC: Final = ShufflerSpec(
    keep_weight=2**31, noise=GeometricNoise(peak=20, left_weight=2**29, right_weight=2**29, most=60)
)
_OPEN: Final[dict[str, Any]] = {"buckets": 0, "dummies_per_user": 0.0}
DRAFTS: Final = (
    draft(),
    draft(domain_size=2, labels=("yes", "no"), buckets=0, population="staff", budget_epsilon=5.0),
    draft(protocol="sh", budget_delta=1e-5, **_OPEN),
    draft(assumed_honest_fraction=0.75, dummies_per_user=0.0, dummies=_NEGATIVE_BINOMIAL),
    draft(protocol="sageo", local_epsilon=float("inf"), shuffler=_GEOMETRIC, **_OPEN),
)


def listed(state: TaskState) -> TaskSummary:
    """Return an analyzer's listing of a task."""
    return TaskSummary(
        task_digest=EXAMPLE_DIGEST,
        state=state,
        protocol="od-hp",
        domain_size=9,
        population="staff",
        n_min=2,
        target_size=3,
        deadline=2**31,
        n_users=5,
        failure="none could be counted",
    )
