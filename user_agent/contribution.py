"""
One person's contribution to one task: randomize, add dummies, pad, permute, seal. Pure.

This is the only code that turns a true value into bytes that leave the device, in production,
simulations and tests.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from common.mechanisms.base import Mechanism, Reports, null_reports
from common.mechanisms.registry import randomizer_of
from common.messages.inclusion_proof import leaf
from common.messages.submission import Submission, Value, pack
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from user_agent.encoding import encoder_for


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSubmission:
    """One user's envelope, with the data to check later that it was counted."""

    envelope: bytes
    """The bytes to send. A retry must send them unchanged."""
    leaves: tuple[bytes, ...]
    """Hashes of its sealed reports, which identify them in the batch (inclusion_proof.py)."""
    deadline: int
    """The task's deadline, in seconds since 1970 UTC."""
    sampled: bool
    """Whether the task lets the shuffler drop reports."""


class Contributor:
    """Prepares submissions to one task."""

    def __init__(self, task: Task, digest: TaskDigest, secret: bytes | None = None) -> None:
        """
        Set up a task's encoder, mechanism and seals; `secret` is the person's, see `encoder_for`.

        Raises:
            TaskError: This version does not know the task's mechanism.
            WireError: A public key of the task is invalid.
        """
        self._task = task
        self._mechanism = randomizer_of(task)
        self._encode = encoder_for(task, secret)
        analyzer_key = HpkePublicKey(task.suite, task.analyzer_key)
        shuffler_key = HpkePublicKey(task.suite, task.shuffler_key)
        self._seal_report = analyzer_key.sealer(report_context(digest))
        self._seal_envelope = shuffler_key.sealer(envelope_context(digest))

    def prepare(self, value: Value, rng: np.random.Generator) -> PreparedSubmission:
        """
        Prepare one user's submission from a value of the task's kind. Run by the user agent.

        Returns:
            The submission. The length of its envelope depends on the task alone.

        Raises:
            ValueRangeError: The value does not fit the task; the message does not repeat it.
            WireError: A public key of the task is a point of small order.

        Cost: one seal for each report and one for the envelope, about 0.1 ms each.
        """
        reports = self._mechanism.randomize(self._encode(value, rng), rng)
        if self._task.dummies.maximum:  # only items have any
            dummies = draw_dummies(cast("Mechanism", self._mechanism), self._task.dummies, rng)
            reports = np.concatenate([reports, dummies])
        reports = pad(reports, self._task.reports_per_user)
        # Permuted before sealing, so that the order of sealing reveals nothing either.
        reports = reports[rng.permutation(len(reports))]
        sealed = [self._seal_report(report.tobytes()) for report in reports]
        submission = Submission(
            submission_id=rng.bytes(SUBMISSION_ID_BYTES), sealed_reports=b"".join(sealed)
        )
        return PreparedSubmission(
            envelope=self._seal_envelope(pack(submission)),
            leaves=tuple(map(leaf, sealed)),
            deadline=self._task.deadline,
            sampled=self._task.shuffler.kept < 1,
        )


def draw_dummies(mechanism: Mechanism, dummies: DummySpec, rng: np.random.Generator) -> Reports:
    """
    Draw one user's dummies, independently of the value. Run by the user agent.

    Returns:
        Reports, shape (m,), with m from 0 to dummies.maximum.
    """
    if dummies.uniform:
        [count] = draw_dummy_counts(dummies, 1, rng)
        return mechanism.dummies(int(count), rng)
    while True:
        items = np.flatnonzero(_successes(dummies, dummies.trials, rng))
        if len(items) <= dummies.most:
            return mechanism.randomize(items, rng)  # no noise: the reports name the items


def draw_dummy_counts(
    dummies: DummySpec, n_users: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw each user's number of dummies, shape (n_users,), from per_user to `maximum`.

    Run by the user agent for one user, and for many by simulations; for any distribution but
    `each-item`. A trial is a bounded integer, which succeeds below extra_weight. A fixed number
    draws nothing.
    """
    if dummies.law == "negative-binomial":
        more = _negative_binomial(dummies, n_users, rng)
        while (over := more > dummies.most).any():
            more[over] = _negative_binomial(dummies, int(over.sum()), rng)
        return dummies.per_user + more
    counts = np.full(n_users, dummies.per_user, dtype=np.int64)
    for _ in range(dummies.trials):
        counts += _successes(dummies, n_users, rng)
    return counts


def _negative_binomial(
    dummies: DummySpec, n_users: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw for each user a sum of `trials` geometric numbers: successes before a failure."""
    total = np.zeros(n_users, dtype=np.int64)
    users = np.repeat(np.arange(n_users), dummies.trials)
    while len(users):
        users = users[_successes(dummies, len(users), rng)]
        total += np.bincount(users, minlength=n_users)
    return total


def _successes(dummies: DummySpec, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    return rng.integers(0, EXTRA_WEIGHT_SUM, size=count, dtype=np.int64) < dummies.extra_weight


def pad(reports: Reports, reports_per_user: int) -> Reports:
    """Append null reports, up to reports_per_user in all; raise ValueError if there are more."""
    missing = reports_per_user - len(reports)
    if missing < 0:
        raise ValueError(f"{len(reports)} reports where a submission holds {reports_per_user}")
    return np.concatenate([reports, null_reports(missing, reports.dtype)])
