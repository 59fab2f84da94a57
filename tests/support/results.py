"""A result as an analyzer would release it, for tests."""

import math

import numpy as np

from common.messages.guarantee import REPLACE_ONE, Guarantee
from common.messages.result import Histogram, Result
from common.task_digest import TaskDigest


def result(digest: TaskDigest) -> Result:
    """Return a result of a task without local noise, with an infinite guarantee."""
    return Result(
        task_digest=digest,
        protocol="od-hp",
        mechanism="grr",
        buckets=3,
        local_epsilon=math.inf,
        n_users=10,
        n_reports=20,
        n_dummies=10,
        refused={"repeated": 1, "unreadable": 0, "malformed": 0},
        estimate=Histogram(
            frequencies=np.array([0.5, -0.1, 0.6]),
            standard_errors=np.array([0.1, 0.1, 0.1]),
            refined=np.array([0.45, 0.0, 0.55]),
            mse_theory=0.01,
        ),
        guarantees=(
            Guarantee(
                coalition="analyzer",
                epsilon=math.inf,
                delta=1e-6,
                neighbouring=REPLACE_ONE,
                theorem="t",
                assumptions=("a", "b"),
            ),
        ),
        published_claim="none",
        open_seconds=1.0,
        estimate_seconds=2.0,
    )
