"""A result as an analyzer would release it, for tests."""

import math
from typing import Any

import numpy as np

from common.messages.estimate import BitTable, Histogram, KeyValues, Means, Owners
from common.messages.guarantee import REPLACE_ONE, Guarantee
from common.messages.result import Result
from common.task_digest import TaskDigest


def result(digest: TaskDigest) -> Result:
    """Give a result of a task without local noise, with an infinite guarantee."""
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


def of_other_kinds() -> tuple[dict[str, Any], ...]:
    """Give what a result of each other kind than items says of itself."""
    ones = np.ones(2)
    return (
        {
            "protocol": "harmony",
            "mechanism": "harmony",
            "buckets": 0,
            "estimate": Means(
                means=ones, standard_errors=ones, shrunk=ones, mse_theory=1.0, unbiased=False
            ),
        },
        {
            "protocol": "priv-kv",
            "mechanism": "priv-kv",
            "buckets": 0,
            "estimate": KeyValues(
                means_with_fakes=ones,
                errors_with_fakes=ones,
                reports=np.array([4, 3]),
                owners=Owners(
                    frequencies=ones, frequency_errors=ones, means=ones, mean_errors=ones
                ),
            ),
        },
        {
            "protocol": "rappor",
            "mechanism": "rappor",
            "buckets": 0,
            "estimate": BitTable(
                cohort_sizes=np.array([3, 4]), bit_counts=np.array([[1, 2], [0, 4]])
            ),
        },
    )
