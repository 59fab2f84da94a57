"""Results and guarantees for tests."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.guarantee import REPLACE_ONE, Coalition, Guarantee
from shuffledp.common.messages.result import Histogram, Result
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest


def counts_of(signed: SignedTask, result: Result) -> NDArray[np.int64]:
    """Invert the estimator of a GRR task: return the counts behind debiased shares."""
    task = Task.from_bytes(signed.task_bytes)
    spec = task.item_mechanism
    total = spec.true_weight + (task.domain_size - 1) * spec.other_weight
    p, q = spec.true_weight / total, spec.other_weight / total
    shares = np.asarray(result.histogram.frequencies)
    return np.rint(result.n_users * (shares * (p - q) + q)).astype(np.int64)


def guarantee(coalition: Coalition, epsilon: float, delta: float, **changes: Any) -> Guarantee:
    """Return a guarantee with an arbitrary theorem and assumption."""
    fields: dict[str, Any] = {
        "neighbouring": REPLACE_ONE,
        "theorem": "a theorem",
        "assumptions": ("the encryption holds",),
    }
    return Guarantee(coalition=coalition, epsilon=epsilon, delta=delta, **fields | changes)


def result(digest: TaskDigest, **changes: Any) -> Result:
    """Return a result of a task without local noise, with an infinite guarantee."""
    fields: dict[str, Any] = {
        "task_digest": digest,
        "protocol": "od-hp",
        "mechanism": "grr",
        "buckets": 3,
        "local_epsilon": math.inf,
        "n_users": 10,
        "n_reports": 20,
        "n_dummies": 10,
        "refused": {"repeated": 1, "unreadable": 0, "malformed": 0},
        "estimate": Histogram(
            frequencies=np.array([0.5, -0.1, 0.6]),
            standard_errors=np.array([0.1, 0.1, 0.1]),
            refined=np.array([0.45, 0.0, 0.55]),
            mse_theory=0.01,
        ),
        "guarantees": (guarantee("analyzer", math.inf, 1e-6, theorem="t", assumptions=("a", "b")),),
        "published_claim": "none",
        "open_seconds": 1.0,
        "estimate_seconds": 2.0,
    }
    return Result(**fields | changes)


def released(task: Task, digest: TaskDigest | None = None, **changes: Any) -> Result:
    """Return a result of a task with the task's claims as guarantees, with some fields changed."""
    fields: dict[str, Any] = {
        "protocol": task.protocol,
        "mechanism": task.mechanism.name,
        "buckets": 0,
        "local_epsilon": task.local_epsilon,
        "n_dummies": 0,
        "refused": {"repeated": 0, "unreadable": 0, "malformed": 0},
        "guarantees": (
            guarantee("analyzer", task.central_epsilon, task.delta),
            guarantee("shuffler+analyzer", task.local_epsilon, 0.0),
            guarantee("network", 0.0, 0.0),
        ),
        "open_seconds": 1.5,
        "estimate_seconds": 0.25,
    }
    own = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    return result(digest or own, **fields | changes)
